"""Does a message leave with the commit of its transaction, in one call, or not at all?"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.http import HttpRequest, HttpResponse
from django.test import Client, TestCase
from django.urls import path

from groupqueue import Outgoing, apublish, apublish_many, publish, publish_many
from groupqueue.core.codec import JSONCodec
from groupqueue.core.messages import split_element
from groupqueue.exceptions import (
    ConfigurationError,
    InvalidMessage,
    PartlyPublished,
    ServerUnavailable,
)
from groupqueue.signals import message_published
from groupqueue.transport.connections import get_async_transport
from tests.recorder import Recorder, recording
from tests.servers import Server
from tests.worker.databases import EACH, PostgreSQL, as_default

if TYPE_CHECKING:
    from pytest_django import Settings

URL = "redis://localhost:1/0"

pytestmark = pytest.mark.django_db(transaction=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on each database; those of Django's TestCase know one alone."""
    metafunc.parametrize("database", EACH, indirect=True)


@pytest.fixture(scope="session")
def postgresql(django_db_setup: None, django_db_blocker: Any) -> Iterator[PostgreSQL]:
    """A schema on the PostgreSQL server with the tables of the suite's apps."""
    database = PostgreSQL()
    try:
        with django_db_blocker.unblock(), as_default(database):
            call_command("migrate", verbosity=0)
        yield database
    finally:
        database.drop()


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the test's transactions are."""
    kind = getattr(request, "param", "sqlite")
    if kind == "sqlite":
        yield kind
        return
    request.getfixturevalue("transactional_db")
    with as_default(request.getfixturevalue("postgresql")):
        assert connection.vendor == kind
        yield kind
        Group.objects.all().delete()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """All transports, noting what they are given."""
    return recording(monkeypatch)


@pytest.fixture
def two_queues(settings: Settings) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": URL}, "billing": {"CONNECTION": URL}}


@pytest.fixture
def other_database(transactional_db: None, database: str, tmp_path: Path) -> Iterator[str]:
    """A second database, by its alias; on PostgreSQL it is the same one over again."""
    other = connection.copy(alias="other")
    if database == "sqlite":
        other.settings_dict["NAME"] = tmp_path / "other.sqlite3"
    connections["other"] = other
    yield "other"
    other.close()
    del connections["other"]


def say(number: object, **options: Any) -> str:
    """Publish a number."""
    return publish("number", number, group="g", **options)


class Rollback(Exception):
    """Ends an atomic block."""


@contextlib.contextmanager
def rolled_back(**options: Any) -> Iterator[None]:
    """An atomic block that does its work in vain."""
    with contextlib.suppress(Rollback), transaction.atomic(**options):
        yield
        raise Rollback


# One transaction, one call ---------------------------------------------------------------


def test_nothing_leaves_before_the_commit(recorder: Recorder) -> None:
    with transaction.atomic():
        identifier = say(1)
        assert recorder.calls == []

    ((queue, (envelope,)),) = recorder.calls
    assert (queue, envelope.id) == ("default", identifier)


def test_the_messages_of_a_transaction_leave_in_one_call_and_in_order(recorder: Recorder) -> None:
    with transaction.atomic():
        first = say(1)
        others = publish_many([Outgoing("number", n, group=f"g{n}") for n in (2, 3)])
        last = say(4)

    assert recorder.payloads == [[1, 2, 3, 4]]
    assert [envelope.id for envelope in recorder.calls[0][1]] == [first, *others, last]


def test_two_transactions_are_two_calls(recorder: Recorder) -> None:
    with transaction.atomic():
        say(1)
    with transaction.atomic():
        say(2)

    assert recorder.payloads == [[1], [2]]


def test_more_messages_than_a_call_takes_leave_in_several(recorder: Recorder) -> None:
    with transaction.atomic():
        for number in range(501):
            say(number)

    assert [len(call) for call in recorder.payloads] == [500, 1]


def test_nothing_leaves_when_the_transaction_is_rolled_back(recorder: Recorder) -> None:
    with rolled_back():
        say(1)
    with transaction.atomic():
        say(2)
        transaction.set_rollback(True)
    with transaction.atomic():
        say(3)

    assert recorder.payloads == [[3]]


def test_publishing_no_messages_leaves_no_hook(recorder: Recorder) -> None:
    with transaction.atomic():
        publish_many([])
        assert connection.run_on_commit == []

    assert recorder.calls == []


def test_on_commit_false_sends_at_once_and_for_good(recorder: Recorder) -> None:
    with rolled_back():
        say(1)
        say(2, on_commit=False)
        publish_many([Outgoing("number", 3, group="g")], on_commit=False)
        assert recorder.payloads == [[2], [3]]

    assert recorder.payloads == [[2], [3]]


def test_a_payload_changed_before_the_commit_leaves_as_it_was(recorder: Recorder) -> None:
    payload = {"id": 17}
    with transaction.atomic():
        say(payload)
        payload["id"] = 18

    assert recorder.payloads == [[{"id": 17}]]


def test_an_invalid_message_is_refused_in_the_block_and_spares_the_others(
    recorder: Recorder,
) -> None:
    with transaction.atomic():
        say(1)
        with pytest.raises(InvalidMessage):
            say(object())
        with pytest.raises(InvalidMessage):
            publish_many([Outgoing("number", 2, group="g"), Outgoing("number", 3, group="")])
        say(4)

    assert recorder.payloads == [[1, 4]]


def test_a_wrong_connection_is_refused_in_the_block(settings: Settings) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": "nowhere.client"}}

    with transaction.atomic(), pytest.raises(ConfigurationError, match="cannot be imported"):
        say(1)


# Savepoints ------------------------------------------------------------------------------


def in_block(*, outcome: str, before: object, after: object, inside: Callable[[], object]) -> None:
    """Publish around an inner atomic block that is kept or rolled back."""
    say(before)
    with rolled_back() if outcome == "rolled back" else transaction.atomic():
        inside()
    say(after)


@pytest.mark.parametrize("outer", ["kept", "rolled back"])
@pytest.mark.parametrize("middle", ["kept", "rolled back"])
@pytest.mark.parametrize("inner", ["kept", "rolled back"])
def test_a_rolled_back_savepoint_takes_with_it_what_was_published_inside(
    recorder: Recorder, outer: str, middle: str, inner: str
) -> None:
    def in_middle() -> None:
        in_block(outcome=inner, before=3, after=5, inside=lambda: say(4))

    def in_outer() -> None:
        in_block(outcome=middle, before=2, after=6, inside=in_middle)

    with transaction.atomic():
        in_block(outcome=outer, before=1, after=7, inside=in_outer)

    kept = {1, 7}
    if outer == "kept":
        kept |= {2, 6}
        if middle == "kept":
            kept |= {3, 5}
            if inner == "kept":
                kept |= {4}
    assert recorder.all_payloads == sorted(kept)


def test_what_stays_around_a_rolled_back_savepoint_leaves_in_one_call(recorder: Recorder) -> None:
    with transaction.atomic():
        in_block(outcome="rolled back", before=1, after=3, inside=lambda: say(2))

    assert recorder.payloads == [[1, 3]]


def test_each_savepoints_messages_leave_in_one_call(recorder: Recorder) -> None:
    with transaction.atomic():
        say(1)
        say(2)
        with transaction.atomic():
            say(3)
            say(4)
        with transaction.atomic():
            say(5)
        say(6)

    assert recorder.payloads == [[1, 2], [3, 4], [5], [6]]


def test_a_block_without_a_savepoint_is_part_of_its_parent(recorder: Recorder) -> None:
    with transaction.atomic():
        say(1)
        with transaction.atomic(savepoint=False):
            say(2)
        say(3)

    assert recorder.payloads == [[1, 2, 3]]


def test_a_failed_block_without_a_savepoint_takes_its_parent_with_it(recorder: Recorder) -> None:
    with transaction.atomic():
        say(1)
        with transaction.atomic():
            say(2)
            with rolled_back(savepoint=False):
                say(3)
        say(4)

    assert recorder.payloads == [[1, 4]]


def test_a_durable_block_sends_at_its_end(recorder: Recorder) -> None:
    with transaction.atomic(durable=True):
        say(1)

    assert recorder.payloads == [[1]]


def test_messages_share_the_fate_of_the_rows_beside_them(
    recorder: Recorder, default_client: redis.Redis
) -> None:
    def save(name: str) -> None:
        Group.objects.create(name=name)
        say(name)

    with transaction.atomic():
        save("one")
        with rolled_back():
            save("two")
        save("three")

    names = list(Group.objects.order_by("pk").values_list("name", flat=True))
    assert recorder.payloads == [names] == [["one", "three"]]


# Among the user's own hooks --------------------------------------------------------------


def test_messages_leave_at_their_place_among_the_users_hooks(recorder: Recorder) -> None:
    def hook(name: str) -> Callable[[], None]:
        return lambda: recorder.calls.append((name, []))

    with transaction.atomic():
        transaction.on_commit(hook("first"))
        say(1)
        say(2)
        transaction.on_commit(hook("second"), robust=True)
        say(3)
        transaction.on_commit(hook("third"))

    assert recorder.payloads_by_queue == [
        ("first", []),
        ("default", [1, 2]),
        ("second", []),
        ("default", [3]),
        ("third", []),
    ]


def test_a_robust_hook_that_fails_leaves_the_messages_alone(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with transaction.atomic():
        transaction.on_commit(fail, robust=True)
        say(1)

    assert recorder.payloads == [[1]]
    assert [record.name for record in caplog.records] == ["django.db.backends.base"]


def test_a_hook_that_fails_keeps_later_messages_back_as_django_documents(
    recorder: Recorder,
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    @transaction.atomic
    def work() -> None:
        say(1)
        transaction.on_commit(fail)
        say(2)

    with pytest.raises(ZeroDivisionError):
        work()

    assert recorder.payloads == [[1]]


def test_a_message_published_by_a_hook_leaves_at_once(recorder: Recorder) -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: say("hook"))
        say(1)

    assert recorder.payloads == [["hook"], [1]]


def test_a_transaction_opened_by_a_hook_has_a_commit_of_its_own(recorder: Recorder) -> None:
    def hook() -> None:
        with transaction.atomic():
            say("a")
            say("b")

    with transaction.atomic():
        transaction.on_commit(hook)
        say(1)

    assert recorder.payloads == [["a", "b"], [1]]


def test_a_receiver_that_publishes_does_not_disturb_the_batch(recorder: Recorder) -> None:
    def receive(topic: str, **kwargs: object) -> None:
        if topic == "number":
            publish("echo", "echo", group="g")

    message_published.connect(receive)
    try:
        with transaction.atomic():
            say(1)
            say(2)
    finally:
        message_published.disconnect(receive)

    assert recorder.payloads == [[1, 2], ["echo"], ["echo"]]


def test_messages_are_signalled_after_the_commit(recorder: Recorder) -> None:
    received: list[str] = []

    def receive(message_id: str, **kwargs: object) -> None:
        received.append(message_id)

    message_published.connect(receive)
    try:
        with transaction.atomic():
            identifiers = [say(1), say(2)]
            assert received == []
    finally:
        message_published.disconnect(receive)

    assert received == identifiers


# Errors at the commit --------------------------------------------------------------------


def test_an_error_at_the_commit_reaches_the_caller_and_the_rows_stay(recorder: Recorder) -> None:
    recorder.errors["default"] = ServerUnavailable("gone")
    ran: list[str] = []

    @transaction.atomic
    def work() -> None:
        Group.objects.create(name="one")
        transaction.on_commit(lambda: ran.append("before"))
        say(1)
        transaction.on_commit(lambda: ran.append("after"))

    with pytest.raises(ServerUnavailable, match="gone"):
        work()

    assert ran == ["before"]
    assert Group.objects.filter(name="one").exists()


def test_the_next_transaction_does_not_send_what_failed(recorder: Recorder) -> None:
    recorder.error_at_call[0] = ServerUnavailable("gone")

    @transaction.atomic
    def work() -> None:
        say(1)
        say(2)

    with pytest.raises(ServerUnavailable):
        work()
    with transaction.atomic():
        say(3)

    assert recorder.payloads == [[3]]


def test_an_error_at_a_later_call_of_the_commit_tells_what_was_stored(recorder: Recorder) -> None:
    recorder.error_at_call[1] = ServerUnavailable("gone")

    with pytest.raises(PartlyPublished) as caught, transaction.atomic():
        identifiers = [say(number) for number in range(700)]

    assert caught.value.published_ids == identifiers[:500]


@pytest.mark.usefixtures("two_queues")
def test_the_trouble_of_one_queue_does_not_cost_anothers_messages(recorder: Recorder) -> None:
    recorder.errors["default"] = ServerUnavailable("gone")

    @transaction.atomic
    def work() -> None:
        say(1)
        say(2, queue="billing")

    with pytest.raises(ServerUnavailable, match="gone"):
        work()

    assert recorder.payloads_by_queue == [("billing", [2])]


@pytest.mark.usefixtures("two_queues")
def test_the_troubles_of_two_queues_are_both_told(recorder: Recorder) -> None:
    recorder.errors["default"] = ServerUnavailable("gone")
    recorder.errors["billing"] = ServerUnavailable("full")

    @transaction.atomic
    def work() -> None:
        say(1)
        say(2, queue="billing")

    with pytest.raises(ServerUnavailable, match="gone") as caught:
        work()

    assert caught.value.__notes__ == ["also: full"]


# Queues and databases --------------------------------------------------------------------


@pytest.mark.usefixtures("two_queues")
def test_two_queues_of_one_transaction_are_one_call_each(recorder: Recorder) -> None:
    with transaction.atomic():
        say(1)
        say(2, queue="billing")
        say(3)
        say(4, queue="billing")

    assert recorder.payloads_by_queue == [("default", [1, 3]), ("billing", [2, 4])]


def test_using_names_the_database_to_wait_for(recorder: Recorder, other_database: str) -> None:
    with transaction.atomic(using=other_database):
        say("at once")
        say("other", using=other_database)
        publish_many([Outgoing("number", "other too", group="g")], using=other_database)
        with transaction.atomic():
            say("default")
            assert recorder.payloads == [["at once"]]
        assert recorder.payloads == [["at once"], ["default"]]

    assert recorder.payloads == [["at once"], ["default"], ["other", "other too"]]


def test_a_rollback_of_one_database_leaves_the_others_messages(
    recorder: Recorder, other_database: str
) -> None:
    with transaction.atomic(), rolled_back(using=other_database):
        say("other", using=other_database)
        say("default")

    assert recorder.payloads == [["default"]]


def test_another_threads_transaction_is_its_own(recorder: Recorder) -> None:
    def publish_in_thread() -> None:
        say("thread")

    with transaction.atomic():
        say("main")
        thread = threading.Thread(target=publish_in_thread)
        thread.start()
        thread.join()
        assert recorder.payloads == [["thread"]]

    assert recorder.payloads == [["thread"], ["main"]]


# Without autocommit ----------------------------------------------------------------------


@pytest.fixture
def without_autocommit(transactional_db: None, database: str) -> Iterator[None]:
    transaction.set_autocommit(False)
    yield
    transaction.rollback()
    transaction.set_autocommit(True)


@pytest.mark.usefixtures("without_autocommit")
def test_with_autocommit_off_there_is_no_commit_to_wait_for(recorder: Recorder) -> None:
    with pytest.raises(TransactionManagementError, match="on_commit=False"):
        say(1)
    say(2, on_commit=False)

    assert recorder.payloads == [[2]]


@pytest.mark.usefixtures("without_autocommit")
def test_with_autocommit_off_an_atomic_block_waits_for_the_real_commit(
    recorder: Recorder,
) -> None:
    with transaction.atomic():
        say(1)
    assert recorder.calls == []

    transaction.commit()
    transaction.set_autocommit(True)

    assert recorder.payloads == [[1]]


def test_a_database_set_to_manual_transactions_is_not_connected_to(
    recorder: Recorder, other_database: str
) -> None:
    connections[other_database].settings_dict["AUTOCOMMIT"] = False

    with pytest.raises(TransactionManagementError, match="on_commit=False"):
        say(1, using=other_database)

    assert connections[other_database].connection is None


def test_publishing_does_not_connect_to_the_database(
    recorder: Recorder, other_database: str
) -> None:
    say(1, using=other_database)

    assert connections[other_database].connection is None
    assert recorder.payloads == [[1]]


# Requests --------------------------------------------------------------------------------


def view(request: HttpRequest) -> HttpResponse:
    """Publish in a request's transaction, with a block of its own in between."""
    say(1)
    with transaction.atomic():
        say(2)
    if "fail" in request.GET:
        raise Rollback
    return HttpResponse(str(connection.in_atomic_block))


urlpatterns = [path("view/", view)]


@pytest.fixture
def request_client(settings: Settings) -> Iterator[Client]:
    """A client of a site whose requests each run in a transaction."""
    settings.ROOT_URLCONF = __name__
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    yield Client(raise_request_exception=False)
    connection.settings_dict["ATOMIC_REQUESTS"] = False


def test_a_requests_messages_leave_with_its_transaction(
    recorder: Recorder, request_client: Client
) -> None:
    response = request_client.get("/view/")

    assert response.content == b"True"
    assert recorder.payloads == [[1], [2]]


def test_a_failed_requests_messages_do_not_leave(
    recorder: Recorder, request_client: Client
) -> None:
    response = request_client.get("/view/?fail")

    assert response.status_code == 500
    assert recorder.calls == []


# Coroutines ------------------------------------------------------------------------------


def test_a_coroutine_run_by_sync_code_waits_for_that_codes_commit(recorder: Recorder) -> None:
    async def work() -> None:
        await apublish("number", 2, group="g")
        await apublish_many([Outgoing("number", 3, group="g")])
        await apublish("number", "at once", group="g", on_commit=False)

    with transaction.atomic():
        say(1)
        async_to_sync(work)()
        assert recorder.payloads == [["at once"]]

    assert recorder.payloads == [["at once"], [1, 2, 3]]


def test_a_coroutine_run_by_sync_code_shares_its_rollback(recorder: Recorder) -> None:
    with rolled_back():
        async_to_sync(apublish)("number", 1, group="g")

    assert recorder.calls == []


def test_a_coroutine_run_by_sync_code_without_a_transaction_sends_at_once(
    recorder: Recorder,
) -> None:
    async_to_sync(apublish)("number", 1, group="g")

    assert recorder.payloads == [[1]]
    # An async connection would be of no use after this one call.
    assert recorder.awaited == 0


async def test_a_coroutine_sends_at_once(recorder: Recorder) -> None:
    await apublish("number", 1, group="g")

    assert recorder.payloads == [[1]]
    assert recorder.awaited == 1


async def test_a_transaction_in_a_thread_of_a_coroutine_has_its_commit(recorder: Recorder) -> None:
    def work() -> None:
        with transaction.atomic():
            say(1)
            say(2)

    await sync_to_async(work)()

    assert recorder.payloads == [[1, 2]]


async def test_a_transaction_that_a_coroutine_sees_is_waited_for(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

    with transaction.atomic():
        await apublish("number", 1, group="g")
        await apublish_many([Outgoing("number", 2, group="g")])
        assert recorder.calls == []

    assert recorder.payloads == [[1, 2]]
    connection.close()


# In a user's tests -----------------------------------------------------------------------


class CaptureOnCommitTest(TestCase):
    """A user's TestCase: its transaction is never committed."""

    def setUp(self) -> None:
        monkeypatch = pytest.MonkeyPatch()
        self.addCleanup(monkeypatch.undo)
        self.recorder = recording(monkeypatch)
        say("set up")

    def test_captured_callbacks_send_the_messages_of_the_block(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            say(1)
            say(2)
            assert self.recorder.calls == []

        assert self.recorder.payloads == [[1, 2]]
        assert len(callbacks) == 2

    def test_each_block_sends_its_own_messages_once(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            say(1)
        say("between")
        with self.captureOnCommitCallbacks(execute=True):
            say(2)
            say(3)

        assert self.recorder.payloads == [[1], [2, 3]]

    def test_callbacks_that_are_captured_only_can_be_run_later(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            say(1)
            say(2)
        assert self.recorder.calls == []

        for callback in callbacks:
            callback()

        assert self.recorder.payloads == [[1, 2]]

    def test_a_message_published_by_a_captured_hook_is_sent_too(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: say("hook"))
            say(1)

        assert self.recorder.payloads == [[1, "hook"]]

    def test_a_savepoint_rolled_back_in_the_block_is_not_sent(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            say(1)
            with rolled_back():
                say(2)

        assert self.recorder.payloads == [[1]]

    async def test_a_coroutine_test_captures_as_well(self) -> None:
        @sync_to_async
        def capture() -> list[Callable[[], Any]]:
            with self.captureOnCommitCallbacks(execute=True) as callbacks:
                async_to_sync(apublish)("number", 1, group="g")
            return callbacks

        await capture()
        await apublish("number", "after", group="g")

        assert self.recorder.payloads == [[1]]


# On a real server ------------------------------------------------------------------------


@pytest.fixture
async def async_connections() -> AsyncIterator[None]:
    """Close the connections of the test's event loop before it ends."""
    yield
    await get_async_transport().close()


def stored(client: redis.Redis) -> list[object]:
    elements: Any = client.lrange("gq:{default:0}:q:g", 0, -1)
    return [JSONCodec().decode(split_element(element)[3]).payload for element in elements]


def script_calls(client: redis.Redis) -> int:
    statistics = client.info("commandstats")
    return sum(
        int(statistics.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("eval", "evalsha")
    )


def test_a_transaction_is_one_script_call_on_the_server(default_client: redis.Redis) -> None:
    say("warm up")
    before = script_calls(default_client)

    with transaction.atomic():
        for number in range(10):
            say(number)
        assert stored(default_client) == ["warm up"]

    assert stored(default_client) == ["warm up", *range(10)]
    assert script_calls(default_client) == before + 1


def test_failure_33_a_rollback_leaves_the_server_as_it_was(default_client: redis.Redis) -> None:
    with rolled_back():
        say(1)

    assert default_client.dbsize() == 0


def test_savepoints_and_rows_agree_on_the_server(default_client: redis.Redis) -> None:
    with transaction.atomic():
        say(1)
        with transaction.atomic():
            say(2)
        with rolled_back():
            say(3)
        say(4)

    assert stored(default_client) == [1, 2, 4]


@pytest.mark.usefixtures("async_connections")
async def test_a_coroutines_message_is_on_the_server_when_it_returns(
    default_client: redis.Redis,
) -> None:
    await apublish("number", 1, group="g")

    assert stored(default_client) == [1]


@pytest.fixture
def own_default(own_server: Server, settings: Settings) -> Server:
    """A server of the test's own for the default queue."""
    settings.GROUPQUEUE = {"default": {"CONNECTION": own_server.url}}
    return own_server


def test_failure_33_with_redis_down_at_the_commit_the_error_is_visible_and_hooks_fare_as_ever(
    own_default: Server,
) -> None:
    say("before")
    ran: list[str] = []

    @transaction.atomic
    def work() -> None:
        Group.objects.create(name="one")
        transaction.on_commit(lambda: ran.append("before"))
        identifiers.append(say("during"))
        # As Django documents: what stands behind a hook that fails does not run.
        transaction.on_commit(lambda: ran.append("behind"))
        own_default.kill()

    identifiers: list[str] = []
    with pytest.raises(ServerUnavailable, match="nothing was stored"):
        work()

    assert ran == ["before"]
    assert Group.objects.filter(name="one").exists()
    assert identifiers  # known to the caller, who may publish again
    own_default.start()
    with transaction.atomic():
        transaction.on_commit(lambda: ran.append("after"))
        say("after")
    assert ran == ["before", "after"]
    client = redis.Redis.from_url(own_default.url, retry=None)
    assert stored(client) == ["before", "after"]
    client.close()
