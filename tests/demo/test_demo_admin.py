"""Does `demo_admin` leave a site running that shows a live queue, and nothing afterwards?"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar

import pytest

from tests.demo.conftest import Demo
from tests.servers import free_port, wait_until


class Browser:
    """Somebody who signs in and looks at pages."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._cookies = CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self._cookies)
        )

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page."""
        with self._opener.open(self._base_url + path, timeout=20) as response:
            return response.status, response.read().decode()

    def sign_in(self, name: str, password: str) -> None:
        """Fill the admin's form in."""
        self.get("/admin/login/")
        token = next(cookie.value for cookie in self._cookies if cookie.name == "csrftoken")
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token}
        data = urllib.parse.urlencode(form).encode()
        with self._opener.open(f"{self._base_url}/admin/login/", data, timeout=20):
            pass


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))
        listener.listen()
        yield listener.getsockname()[1]


def url_of(process: subprocess.Popen[str]) -> str:
    """Return where the site is, once it says so."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"(http://127\.0\.0\.1:\d+)/admin/groupqueue/groupqueue/", line):
            return found[1]
    raise AssertionError("the site does not say where it is")


def test_the_site_shows_a_live_queue_after_signing_in(demo: Demo) -> None:
    process = demo.start("demo_admin", "--port", str(free_port()))
    browser = Browser(url_of(process))
    status, login = browser.get("/admin/login/")
    assert status == 200
    assert "csrfmiddlewaretoken" in login
    browser.sign_in("admin", "admin")

    def page_shows(text: str) -> bool:
        status, page = browser.get("/admin/groupqueue/groupqueue/")
        return status == 200 and text in page

    wait_until(lambda: page_shows("in the hangar for inspection"), "a paused group", seconds=60)
    wait_until(lambda: page_shows("grounded: a mechanic"), "a halted group", seconds=60)
    wait_until(lambda: page_shows("does not report its position"), "a failure", seconds=60)
    assert browser.get("/admin/flights/aircraft/")[0] == 200

    second = demo.run("demo_admin")
    assert second.returncode == 1
    assert f"started by process {process.pid}" in second.stderr

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    wait_until(lambda: not demo.is_in_use(), "the site and the workers have ended")


def test_the_next_free_port_is_taken_and_the_site_ends_after_its_time(
    demo: Demo, taken_port: int
) -> None:
    outcome = demo.run("demo_admin", "--port", str(taken_port), "--seconds", "0.5")
    assert outcome.returncode == 0, outcome.stderr
    assert f"http://127.0.0.1:{taken_port}/" not in outcome.stdout
    assert "http://127.0.0.1:" in outcome.stdout
    assert "Sign in as admin, password admin" in outcome.stdout
    wait_until(lambda: not demo.is_in_use(), "the site and the workers have ended")
