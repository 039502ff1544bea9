"""With which settings does the demo run? SQLite and the embedded server, in one directory."""

from __future__ import annotations

from demo.place import DIRECTORY

# SQLite makes files, but no directories.
DIRECTORY.mkdir(mode=0o700, parents=True, exist_ok=True)

SECRET_KEY = "the demo listens on this machine alone and keeps no secrets"  # noqa: S105
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "demo.urls"
WSGI_APPLICATION = "demo.wsgi.application"
LOGIN_REDIRECT_URL = "admin:index"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "groupqueue",
    "demo.flights",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DIRECTORY / "demo.sqlite3",
        # The last connection to close writes the whole log back: keep them open.
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            # Several processes write. With the log ahead readers do not hold them up, and
            # with IMMEDIATE a writer waits its turn instead of failing halfway.
            "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
        },
    },
}

GROUPQUEUE = {
    "default": {
        "CONNECTION": f"embedded://{DIRECTORY / 'server'}",
    },
}
