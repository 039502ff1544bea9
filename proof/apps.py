"""Who stamps the scripts in every process of a proof? This app, when Django has loaded it."""

from __future__ import annotations

import faulthandler
import signal

from django.apps import AppConfig

from proof import stamps
from proof.edits import Edit, put_in
from proof.plan import current_plan


class ProofConfig(AppConfig):
    """The app whose handlers the workers of a proof run."""

    name = "proof"

    def ready(self) -> None:
        """Let scripts be stamped, and broken where the plan says so."""
        plan = current_plan()
        if plan is None:
            return
        if plan.mutation is not None:
            put_in([Edit(*plan.mutation)])
        stamps.install()
        # Whoever does not end is asked what it is doing.
        faulthandler.register(signal.SIGUSR1)
