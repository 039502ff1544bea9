"""With which settings do the workers under test run? Those of the suite, as the plan says."""

from __future__ import annotations

import os
import sys

from django.core.exceptions import ImproperlyConfigured

from tests import settings as suite
from tests.worker.plan import current_plan

PLAN = current_plan()
SECRET_KEY = suite.SECRET_KEY
DEBUG = False
USE_TZ = True
DEFAULT_AUTO_FIELD = suite.DEFAULT_AUTO_FIELD
INSTALLED_APPS = ["groupqueue", "tests.worker.project", *PLAN.apps]
DATABASES = PLAN.databases or suite.DATABASES
# Handlers publish to "default" unless they say otherwise; none of these does.
GROUPQUEUE = suite.GROUPQUEUE | PLAN.queues

if "run_group_workers" not in sys.argv:
    match PLAN.broken_children:
        case "exit":
            os._exit(3)
        case "raise":
            raise RuntimeError("these settings are of no use in a child process")
        case "improper":
            raise ImproperlyConfigured("these settings are of no use in a child process")
        case "setting":
            GROUPQUEUE = {
                name: {**keys, "VISIBILITY_TIMEOUT": "soon"} for name, keys in GROUPQUEUE.items()
            }
        case "handler":
            INSTALLED_APPS += ["tests.worker.project.rivals"]
