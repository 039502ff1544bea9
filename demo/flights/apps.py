"""How Django knows the demo's app."""

from __future__ import annotations

from django.apps import AppConfig


class FlightsConfig(AppConfig):
    """The app `flights`."""

    name = "demo.flights"
    label = "flights"
    verbose_name = "Flights"
