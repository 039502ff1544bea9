"""With which settings does the suite run Django?

The server and the database are named here, before anything starts, and handed
to child processes in the environment; `conftest.py` starts the one, makes the
folder of the other, and removes both.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path

from tests.servers import free_port

# Each process of pytest-xdist has a server and a folder of its own.
PART = os.environ.get("PYTEST_XDIST_WORKER", "").upper()
SERVER_URL = os.environ.setdefault(
    f"GROUPQUEUE_TEST_URL{PART}", f"redis://127.0.0.1:{free_port()}/0"
)
DIRECTORY = Path(
    os.environ.setdefault(
        f"GROUPQUEUE_TEST_DIRECTORY{PART}",
        str(Path(tempfile.gettempdir()) / f"groupqueue-tests-{uuid.uuid4().hex[:12]}"),
    )
)

SECRET_KEY = "of no use outside the suite"
DEBUG = False
ALLOWED_HOSTS = ["testserver", "127.0.0.1"]
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.admin",
    "groupqueue",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# A file, and the same one for tests and for the commands they start: several
# threads and processes see each other's commits.
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DIRECTORY / "tests.sqlite3",
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
        "TEST": {"NAME": DIRECTORY / "tests.sqlite3"},
    },
}

GROUPQUEUE = {"default": {"CONNECTION": SERVER_URL}}
