#!/usr/bin/env python
"""The demo project's entry: `python manage.py demo_flights`, `demo_admin`, and Django's own."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Run the command that the command line names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "demo.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
