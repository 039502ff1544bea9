"""How Django takes groupqueue in: its checks, and the handlers of all apps."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class GroupQueueConfig(AppConfig):
    """The app `groupqueue`."""

    name = "groupqueue"
    label = "groupqueue"
    verbose_name = _("Group queues")

    def ready(self) -> None:
        # Publishing makes itself known to the handlers, which can publish from then on.
        from groupqueue import checks, handlers, publishing  # noqa: F401, PLC0415

        handlers.autodiscover()
