"""What the admin's sidebar and permissions hang on: a model without a table."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class NoRowsManager(models.Manager["GroupQueue"]):
    """Finds nothing without asking the database, which has no such table."""

    def get_queryset(self) -> models.QuerySet[GroupQueue]:
        return super().get_queryset().none()


class GroupQueue(models.Model):
    """A queue; it lives in Redis and is read from there. No row of this is ever stored."""

    name = models.CharField(_("name"), max_length=64, primary_key=True)

    # dumpdata and its like read every model, unmanaged ones too.
    objects: ClassVar[NoRowsManager] = NoRowsManager()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view",)
        permissions = (("manage_groupqueue", _("Can pause and resume groups and skip messages")),)
        verbose_name = _("group queue")
        verbose_name_plural = _("group queues")

    def __str__(self) -> str:
        return self.name
