"""With which settings do the benchmarks and their workers run Django?

The server's URL comes in the environment, since it is started for each run.
"""

from __future__ import annotations

import os

SECRET_KEY = "of no use outside the benchmarks"  # noqa: S105
DEBUG = False
USE_TZ = True
INSTALLED_APPS = ["groupqueue", "benchmarks"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
GROUPQUEUE = {
    "default": {"CONNECTION": os.environ.get("GROUPQUEUE_BENCHMARK_URL", "redis://127.0.0.1/0")},
}
