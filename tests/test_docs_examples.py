"""Do the examples of the pages run as they stand, and do what the pages say?"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from django.dispatch import Signal

from groupqueue import AsyncRedisTransport, RedisTransport, get_queue, handlers, signals
from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.messages import Envelope, EnvelopeOptions
from groupqueue.transport import checkup, servers
from tests.documents import DOCS, README, ROOT, Block, blocks, coded, rows, section
from tests.servers import Server

FIVE_MINUTES = "Five minutes in your own project"
HANDLERS = DOCS / "handlers.md"
COMING_FROM = DOCS / "coming-from.md"

# What the README leaves to the reader's hands, and how the test does it.
BY_HAND = ("pip install", "python manage.py runserver", "curl")

POST = """
from django.test import Client
client = Client(enforce_csrf_checks=True, SERVER_NAME="127.0.0.1")
response = client.post({path!r})
assert response.status_code == 200, response.content
assert len(response.json()["message"]) == 32
"""

LOOK_AT_THE_ADMIN = """
from django.contrib.auth.models import User
from django.test import Client
client = Client(SERVER_NAME="127.0.0.1")
client.force_login(User.objects.create_superuser("admin"))
assert "Group queues" in client.get("/admin/").content.decode()
page = client.get("/admin/groupqueue/groupqueue/")
assert page.status_code == 200
print("acknowledged" in page.content.decode().lower())
"""

PUBLISH_DEPOSITS = """
from shop.handlers import deposit
from shop.models import Account
Account.objects.create(number="7")
for amount in (10, 5):
    deposit.publish({"account": "7", "amount": amount}, group="account-7")
"""

DELIVER_AGAIN_AND_LATE = """
from types import SimpleNamespace
from shop.handlers import deposit
from shop.models import Account
def deliver(identifier, fencing_token):
    payload = {"account": "7", "amount": 1000}
    deposit(SimpleNamespace(id=identifier, fencing_token=fencing_token, payload=payload))
account = Account.objects.get()
print("balance", account.balance)
deliver(account.last_message, account.fence + 1)
deliver("of a stale worker", account.fence - 1)
deliver("of a stale worker", account.fence)
print("balance", Account.objects.get().balance)
"""


class Project:
    """A project made as the README says, in a directory that is thrown away."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = {
            name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"
        } | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def write(self, block: Block) -> None:
        """Put a block into the file that its first line names."""
        assert block.path is not None
        path = self._directory / block.path
        with path.open("a" if block.is_appended else "w") as file:
            file.write(block.text)

    def run(self, line: str, *more: str) -> str:
        """Run a line of a shell example; return what it prints."""
        program, *arguments = line.split()
        command = {
            "python": [sys.executable],
            "django-admin": [sys.executable, "-m", "django"],
        }[program]
        done = subprocess.run(
            [*command, *arguments, *more],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def shell(self, code: str) -> str:
        """Run code in the project; return what it prints."""
        return self.run("python manage.py shell --verbosity 0 -c", code)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty directory to follow the README in."""
    directory = tmp_path / "project"
    directory.mkdir()
    return Project(directory)


def test_five_minutes_with_the_readme(project: Project):
    requests: list[str] = []
    workers: list[str] = []
    for block in blocks(section(README, FIVE_MINUTES)):
        if block.language == "python":
            project.write(block)
            continue
        for line in block.text.splitlines():
            if "run_group_workers" in line:
                workers.append(line)
            elif line.startswith("curl"):
                requests.append(line)
            elif not line.startswith(BY_HAND):
                project.run(line)
    assert "no issues" in project.run("python manage.py check")

    for request in requests:
        project.shell(POST.format(path=re.sub(r".*http://127.0.0.1:8000", "", request)))
    [worker] = workers
    output = project.run(worker, "--burst")

    printed = [line for line in output.splitlines() if line.startswith("order 17")]
    assert printed == ["order 17 is paid (attempt 1)", "order 17 is shipped (attempt 1)"]
    assert all(line in README.read_text() for line in printed)
    assert project.shell(LOOK_AT_THE_ADMIN).strip() == "True"


def test_fenced_writes_take_effect_once(project: Project):
    project.run("django-admin startproject mysite .")
    project.run("python manage.py startapp shop")
    [settings] = [
        block
        for block in blocks(section(README, FIVE_MINUTES), "python")
        if block.path == "mysite/settings.py"
    ]
    for block in (settings, *blocks(section(HANDLERS, "Fencing your own writes"), "python")):
        project.write(block)
    project.run("python manage.py makemigrations shop")
    project.run("python manage.py migrate")

    project.shell(PUBLISH_DEPOSITS)
    project.run("python manage.py run_group_workers --burst")

    assert project.shell(DELIVER_AGAIN_AND_LATE).splitlines() == ["balance 15", "balance 15"]


def test_the_transport_works_without_django(default_client: redis.Redis, default_server: Server):
    [example] = blocks(section(README, "Without Django"), "python")
    code = example.text.replace("redis.Redis()", f"redis.Redis.from_url({default_server.url!r})")
    assert code != example.text

    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('django' in sys.modules)"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"account-7 b'deposit 10' \d+", first)
    assert second == "False"
    assert not default_client.exists("gq:{accounts:0}:q:account-7")


def test_the_calls_of_the_transports_print_what_their_examples_say(
    default_client: redis.Redis, default_server: Server, capsys: pytest.CaptureFixture[str]
):
    for example in blocks(section(COMING_FROM, "RedisTransport"), "python"):
        code = re.sub(
            r"(redis\.(?:asyncio\.)?Redis)\(\)",
            rf"\1.from_url('{default_server.url}')",
            example.text,
        )
        assert code != example.text

        _run([Block("python", code)])

        said = re.findall(r"(?:^|  )# (.+)", example.text, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == said
    assert not default_client.keys("gq:{accounts:0}:q:*")


def test_the_table_of_the_transports_has_their_signatures_and_its_examples_use_each():
    synchronous, asynchronous = blocks(section(COMING_FROM, "RedisTransport"), "python")
    for call, *_ in rows(COMING_FROM, "RedisTransport"):
        name, documented = _signature(coded(call)[0])
        for transport, example in (
            (RedisTransport, synchronous.text),
            (AsyncRedisTransport, asynchronous.text),
        ):
            is_class = name == RedisTransport.__name__
            actual = inspect.signature(transport if is_class else getattr(transport, name))
            assert (
                documented
                == [
                    parameter.replace(annotation=parameter.empty)
                    for parameter in actual.parameters.values()
                    if parameter.name != "self"
                ][: len(documented)]
            )
            assert f"{transport.__name__ if is_class else f'transport.{name}'}(" in example


def test_the_publishing_examples_publish_what_they_say(
    transactional_db: None, default_client: redis.Redis
):
    _run(blocks((DOCS / "publishing.md").read_text(), "python"))

    def topics(group: str) -> list[str]:
        elements = default_client.lrange(f"gq:{{default:0}}:q:{group}", 0, -1)
        return [re.findall(r'\["([\w.]+)"', element.decode())[0] for element in elements]

    assert topics("order-17") == ["orders.paid", "orders.paid", "orders.paid"]
    assert topics("order-18") == ["orders.paid"]


def test_the_handler_examples_can_be_declared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(handlers, "_handlers", {})
    name = "page_somebody"

    namespaces = _run(blocks(HANDLERS.read_text(), "python"))

    assert set(handlers.registered()) == {
        "books.build",
        "cards.charge",
        "meters.read",
        "orders.prepare",
        "partners.notified",
        "payments.due",
        "reports.requested",
    }
    [receiver] = [namespace[name] for namespace in namespaces if name in namespace]
    assert isinstance(signals.group_halted, Signal)
    assert signals.group_halted.disconnect(receiver)


def test_the_operating_examples_run(
    default_client: redis.Redis, capsys: pytest.CaptureFixture[str]
):
    transport = RedisTransport(default_client, "gq:{default:0}")
    transport.publish("order-18", b"payload")
    lease = transport.claim("worker", 30)
    assert lease is not None
    transport.settle(Settlement.halt(lease, "max_attempts", "ValueError: no"))
    transport.publish("order-17", b'["orders.paid",{}]')
    lease = transport.claim("worker", 30)
    assert lease is not None
    transport.settle(Settlement.dead(lease, "rejected", "Reject: no"))
    transport.close()

    _run(blocks((DOCS / "operating.md").read_text(), "python"))

    held, explained, stopped, letter, audited = capsys.readouterr().out.splitlines()
    assert held == "order-18 halted max_attempts ValueError: no"
    assert explained == "empty the group has no messages 0"
    assert re.fullmatch(r"20\S+ \S+ moving the database", stopped)
    assert re.fullmatch(r"\d+-\d+ order-17 rejected Reject: no 20\S+ \S+", letter)
    assert audited == "0 True"
    assert get_queue().peek("order-17").depth == 1
    assert get_queue().dead_letters().total == 0


def test_the_acl_recipe_is_enough_for_everything(redis_client: redis.Redis, server: Server):
    [recipe] = blocks((DOCS / "operating.md").read_text(), "text")
    user = f"user-{uuid.uuid4().hex}"
    words = recipe.text.replace("SETUSER groupqueue", f"SETUSER {user}").split()
    redis_client.execute_command(*words)
    redis_client.acl_log_reset()
    url = server.url.replace("redis://", f"redis://{user}:password@")
    transport = RedisTransport(redis.Redis.from_url(url), "gq:{default:0}")
    try:
        _use_every_script(transport)
        assert not servers.findings_of(transport)

        assert not redis_client.acl_log()
    finally:
        transport.close()
        redis_client.acl_deluser(user)


# Helpers -------------------------------------------------------------------------------


def _run(examples: Sequence[Block]) -> list[dict[str, Any]]:
    """Execute the examples that are not files of a project; return what each has defined."""
    namespaces = []
    for example in examples:
        if example.path is None:
            namespace: dict[str, Any] = {"__name__": "example"}
            exec(compile(example.text, "example", "exec"), namespace)
            namespaces.append(namespace)
    return namespaces


def _signature(call: str) -> tuple[str, list[inspect.Parameter]]:
    """Return the name and the parameters of a call as a page shows it."""
    namespace: dict[str, Any] = {}
    exec(f"def {call}: ...", namespace)
    name = call.partition("(")[0]
    return name, list(inspect.signature(namespace[name]).parameters.values())


def _use_every_script(transport: RedisTransport) -> None:
    prefix = transport.prefix
    for group in ("a", "b", "c"):
        transport.publish(group, b"payload")
    lease = transport.claim("worker", 30)
    assert lease is not None
    transport.renew([lease], 30)
    transport.nack(lease)
    for _ in range(2):
        turned = transport.turn("worker", [], 1, visibility=30)
        transport.settle(Settlement.halt(turned.leases[0], "why"))
    transport.recover("worker", 0)
    transport.ack(transport.turn("worker", [], 1, visibility=30).leases[0])
    transport.publish("d", b"payload")
    lease = transport.claim("worker", 30)
    assert lease is not None
    transport.settle(Settlement.dead(lease, "why"))
    identifier = transport.publish("e", b"payload")
    transport.perform(calls.pause(prefix, "e", "why"))
    transport.perform(calls.skip(prefix, "e", identifier))
    transport.perform(calls.resume(prefix, "e"))
    _examine(transport)
    _operate(transport)
    _control(transport)
    later = EnvelopeOptions(due="+60000", hold=True, dedup_key="key", dedup_ms=1000)
    scheduled = Envelope("0" * 32, "f", 0, b"payload", later)
    transport.publish_envelopes([scheduled, scheduled._replace(options=None)])
    transport.perform(calls.agenda(prefix, 0, 10, lambda reply: reply))
    transport.perform(calls.reschedule(prefix, scheduled.id, "+70000"))
    transport.perform(calls.cancel(prefix, scheduled.id))
    transport.perform(calls.heartbeat(prefix, "worker", {"pid": 1}, kept_ms=1000))
    transport.perform(calls.inspect(prefix, 10, lambda reply: reply))
    transport.perform(calls.depart(prefix, "worker"))
    transport.wait_for_hint(0.01)


def _control(transport: RedisTransport) -> None:
    """Use what holds a queue back on purpose."""
    prefix = transport.prefix
    for group in ("", "slow"):
        transport.perform(calls.rate(prefix, group, "1000 2"))
    for _ in range(3):
        transport.publish("slow", b"payload")
    turned = transport.turn("worker", [], 9, visibility=30)
    [slow] = [lease for lease in turned.leases if lease.group == "slow"]
    transport.settle(Settlement.dead_group(slow, "why"))
    while not transport.turn("worker", [], 1, visibility=30).buried:
        continue
    transport.perform(calls.rate(prefix, "slow", ""))
    transport.perform(calls.rate(prefix, "", ""))
    transport.perform(calls.stop(prefix, "why"))
    transport.perform(calls.start(prefix))
    transport.perform(calls.trim(prefix, max_age_ms=1, max_count=1))
    transport.perform(calls.trim(prefix, max_age_ms=1, max_count=None))


def _examine(transport: RedisTransport) -> None:
    """Use the scripts of the doctor, also on what is broken."""
    prefix = transport.prefix
    transport.client.hset(f"{prefix}:prio", "d", "high")
    for source in ("own", "keys", "prio", "ready:0", "scheduled", "dead"):
        transport.perform(calls.survey(prefix, source))
    for kind in ("group", "list", "message", "letter", "queue"):
        transport.perform(calls.audit(prefix, kind, ["0-1"]))
    for kind in ("group", "message", "key", "queue"):
        transport.perform(calls.repair(prefix, kind, ["d"]))
    assert not checkup.findings_of(transport)


def _operate(transport: RedisTransport) -> None:
    """Use the scripts that operators use; there are two dead letters."""
    prefix = transport.prefix
    for newest_first in (True, False):
        first, last = ("+", "-") if newest_first else ("-", "+")
        call = calls.letters(prefix, first, last, 9, newest_first=newest_first, decode=list)
        entries = [entry.decode() for entry, _ in transport.perform(call)[1]]
    assert len(entries) == 2
    assert transport.perform(calls.redrive(prefix, entries[:1])) == 1
    assert transport.perform(calls.drop(prefix, entries[1:])) == 1
    assert transport.perform(calls.set_tier(prefix, "d", 3)).is_known
    transport.perform(calls.peek(prefix, "d", 0, 9, list))
    assert transport.claim("worker", 30, 3) is not None
    transport.perform(calls.explain(prefix, "d", list))
    assert transport.perform(calls.release(prefix, "d"))
    assert transport.perform(calls.purge(prefix, ["d"])).messages == 1
