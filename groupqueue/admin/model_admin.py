"""Which URLs the admin serves for group queues, and who may use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote as unquote_object_id
from django.core.exceptions import PermissionDenied
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from groupqueue import conf
from groupqueue.admin import wording
from groupqueue.admin.actions import ACTIONS, QUEUE_ACTIONS, Actions, Outcome, Target
from groupqueue.admin.page import look_at
from groupqueue.exceptions import ConfigurationError, GroupQueueError, ServerUnavailable
from groupqueue.models import GroupQueue

REFRESH_SECONDS = 5

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[GroupQueue]
else:
    _ModelAdmin = admin.ModelAdmin


@admin.register(GroupQueue)
class GroupQueueAdmin(_ModelAdmin):
    """The page of all queues. There is nothing in the database to add, change or delete."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        """Queues come from the settings."""
        return False

    def has_change_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: GroupQueue | None = None,  # noqa: ARG002
    ) -> bool:
        """There is no form; what may be done with groups has a permission of its own."""
        return False

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: GroupQueue | None = None,  # noqa: ARG002
    ) -> bool:
        """Queues come from the settings."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: GroupQueue | None = None) -> bool:
        """Whoever may manage the groups may see them."""
        return super().has_view_permission(request, obj) or self.has_manage_permission(request)

    def has_manage_permission(self, request: HttpRequest) -> bool:
        """Whether groups may be paused, resumed and skipped, and queues stopped and started."""
        return request.user.has_perm("groupqueue.manage_groupqueue")

    def get_urls(self) -> list[URLPattern]:
        """Replace the views over the database; the names are what the sidebar asks for."""
        return [
            path("", self._view(self.changelist_view), name=_url_name("changelist")),
            path("live/", self._view(self.live_view), name=_url_name("live")),
            # Where the index's list of recent actions leads to.
            path("<path:object_id>/change/", self._view(self.entry_view), name=_url_name("change")),
            path("groups/<str:action>/", self._view(self.act_view), name=_url_name("act")),
            path("queue/<str:action>/", self._view(self.control_view), name=_url_name("control")),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """Show one queue: `?queue=`, or the first one."""
        try:
            queues = conf.configured_queues()
            context = self._context(request, queues, _asked_queue(request, queues))
        except ConfigurationError as error:
            context = {"misconfigured": str(error)}
        title = capfirst(self.opts.verbose_name_plural)
        context |= self.admin_site.each_context(request)
        context |= {"title": title, "opts": self.opts, **(extra_context or {})}
        return TemplateResponse(request, "groupqueue/admin/page.html", context)

    def live_view(self, request: HttpRequest) -> TemplateResponse:
        """Answer with the part of the page that changes; 503 when Redis does not answer."""
        try:
            queues = conf.configured_queues()
        except ConfigurationError as error:
            raise Http404(str(error)) from error
        context = self._context(request, queues, _asked_queue(request, queues))
        trouble = context["state"].trouble
        status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
        return TemplateResponse(request, "groupqueue/admin/live.html", context, status=status)

    def entry_view(self, _request: HttpRequest, object_id: str) -> HttpResponse:
        """Lead from a log entry, "queue/group", to the page of its queue."""
        queue = unquote_object_id(object_id).partition("/")[0]
        return HttpResponseRedirect(self._page_url(queue))

    def act_view(self, request: HttpRequest, action: str) -> HttpResponse:
        """Pause, resume or skip, then show the queue again."""
        target = Target(
            queue=request.POST.get("queue", ""),
            group=unquote(request.POST.get("group", "")),
            message_id=unquote(request.POST.get("message", ""), errors="surrogateescape"),
            operator=request.user.get_username(),
        )
        return self._answer(request, ACTIONS, action, target)

    def control_view(self, request: HttpRequest, action: str) -> HttpResponse:
        """Stop or start the whole queue, then show it again."""
        queue, operator = request.POST.get("queue", ""), request.user.get_username()
        target = Target(queue=queue, group="", message_id="", operator=operator)
        return self._answer(request, QUEUE_ACTIONS, action, target)

    def _answer(
        self, request: HttpRequest, actions: Actions, action: str, target: Target
    ) -> HttpResponse:
        if not self.has_manage_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if action not in actions:
            raise Http404(f"there is no action {action!r}")
        if actions is ACTIONS and not target.group:
            return HttpResponseBadRequest("the form names no group", content_type="text/plain")
        if target.queue not in conf.configured_queues():
            raise Http404(f"there is no queue {target.queue!r}")
        self._act(request, actions[action], target)
        return HttpResponseRedirect(self._page_url(target.queue))

    def _act(self, request: HttpRequest, act: Callable[[Target], Outcome], target: Target) -> None:
        try:
            outcome = act(target)
        except ServerUnavailable as error:
            text = _("Whether anything has changed is not known; look before you try again.")
            self.message_user(request, f"{text} {error}", messages.ERROR)
        except GroupQueueError as error:
            # A server's error quotes keys, and with them group ids.
            self.message_user(request, wording.printable(str(error)), messages.ERROR)
        else:
            level = messages.SUCCESS if outcome.done else messages.WARNING
            if outcome.done:
                self.log_change(request, GroupQueue(name=str(target)), outcome.text)
            self.message_user(request, outcome.text, level)

    def _context(self, request: HttpRequest, queues: Sequence[str], queue: str) -> dict[str, Any]:
        return {
            "queue": queue,
            "subtitle": queue,
            "state": look_at(queue, may_manage=self.has_manage_permission(request)),
            "tabs": [(name, self._page_url(name)) for name in queues],
            "page_url": self._page_url(queue),
            "live_url": f"{self._url('live')}?{urlencode({'queue': queue})}",
            "refresh_seconds": REFRESH_SECONDS,
        }

    def _page_url(self, queue: str) -> str:
        return f"{self._url('changelist')}?{urlencode({'queue': queue})}"

    def _url(self, name: str, *arguments: str) -> str:
        current_app = self.admin_site.name
        return reverse(f"admin:{_url_name(name)}", args=arguments, current_app=current_app)

    def _view(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        """Demand a signed-in member of staff who may see the queues."""

        @wraps(view)
        def permitted(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not self.has_view_permission(request):
                raise PermissionDenied
            # The templates' links stay on this admin site.
            request.current_app = self.admin_site.name
            return view(request, *args, **kwargs)

        return self.admin_site.admin_view(permitted)


def _url_name(name: str) -> str:
    return f"groupqueue_groupqueue_{name}"


def _asked_queue(request: HttpRequest, queues: Sequence[str]) -> str:
    queue = request.GET.get("queue", queues[0])
    if queue not in queues:
        raise Http404(f"there is no queue {queue!r}")
    return queue
