"""How groupqueue appears in Django's admin: a sidebar entry, and a page that reads Redis live."""

from groupqueue.admin.model_admin import GroupQueueAdmin as GroupQueueAdmin
