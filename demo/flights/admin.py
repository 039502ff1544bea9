"""What the demo's admin shows of the aircraft: all of it, to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin

from demo.flights.models import Aircraft

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Aircraft]
else:
    _ModelAdmin = admin.ModelAdmin


@admin.register(Aircraft)
class AircraftAdmin(_ModelAdmin):
    """The aircraft; only their flights change them."""

    list_display = ("tail_number", "flights", "last_airport", "delay_min", "duplicates", "chain")
    search_fields = ("tail_number",)
    list_per_page = 50

    def has_add_permission(self, *_args: Any, **_kwargs: Any) -> bool:
        """Aircraft come with their first flight."""
        return False

    def has_change_permission(self, *_args: Any, **_kwargs: Any) -> bool:
        """A chain that was edited would prove nothing."""
        return False

    def has_delete_permission(self, *_args: Any, **_kwargs: Any) -> bool:
        """As for changes."""
        return False
