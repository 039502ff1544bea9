"""With which settings do the actors of a proof run Django? As their plan says."""

from __future__ import annotations

from proof.plan import current_plan

PLAN = current_plan()
SECRET_KEY = "of no use outside the proof"  # noqa: S105
DEBUG = False
USE_TZ = True
INSTALLED_APPS = ["groupqueue", "proof.apps.ProofConfig"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}

# Short, so that leases end while one watches; long enough for two busy cores.
VISIBILITY_SECONDS = 2.0
HANDLER_TIMEOUT_SECONDS = 6.0
MAX_ATTEMPTS = MAX_CRASHES = 3
QUEUE = {
    "VISIBILITY_TIMEOUT": VISIBILITY_SECONDS,
    "HANDLER_TIMEOUT": HANDLER_TIMEOUT_SECONDS,
    "BACKOFF": (0.05, 0.3),
    "MAX_ATTEMPTS": MAX_ATTEMPTS,
    "MAX_CRASHES": MAX_CRASHES,
    "MAX_GROUP_DEPTH": 100,
    "DEDUP_WINDOW": 10,
}
GROUPQUEUE = {
    PLAN.queue if PLAN else "proof": {
        "CONNECTION": PLAN.url if PLAN else "redis://127.0.0.1:6379/0",
        **QUEUE,
        **(PLAN.settings if PLAN else {}),
    }
}
