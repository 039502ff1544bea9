"""How does a test get a server that is reached through TLS, and how is it to be trusted?

The certificates are made for the test, by an authority of its own. A server ends TLS
itself where its program can; a tunnel before one that cannot, as providers have it,
is there on every machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import trustme

from tests.servers import Kind, available_kinds, free_port, server_program, start_server

TUNNEL = "tunnel"
USER, PASSWORD = "app", "sesame&open/the:door@once"


class Certificates:
    """An authority's certificate, and one that it gave to a server."""

    def __init__(self, directory: Path, host: str = "127.0.0.1") -> None:
        directory.mkdir(parents=True)
        self.authority = directory / "authority.pem"
        self.certificate = directory / "server.pem"
        self.key = directory / "server.key"
        authority = trustme.CA()
        issued = authority.issue_cert(host)
        authority.cert_pem.write_to_path(self.authority)
        issued.cert_chain_pems[0].write_to_path(self.certificate)
        issued.private_key_pem.write_to_path(self.key)


class Endpoint:
    """Where TLS is spoken, and by whose word."""

    def __init__(self, port: int, certificates: Certificates) -> None:
        self.port = port
        self.certificates = certificates

    def url(self, *, authority: Path | None = None) -> str:
        """Return a URL that trusts the server's own authority, or another one."""
        trusted = authority or self.certificates.authority
        return (
            f"rediss://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/0"
            f"?ssl_ca_certs={quote(str(trusted), safe='')}"
        )


def endpoint_kinds() -> list[str]:
    """Return who can end TLS here: each server that is built for it, and the tunnel always."""
    return [*(kind for kind in available_kinds() if _knows_tls(kind)), TUNNEL]


@contextmanager
def endpoint(kind: str, directory: Path, certificates: Certificates) -> Iterator[Endpoint]:
    """Run a server that lets in one user, through TLS."""
    port = free_port()
    users = (f"--user {USER} on >{PASSWORD} ~* &* +@all", "--user default off")
    arguments = " ".join(users).split()
    if kind == TUNNEL:
        server = start_server("valkey", directory, extra_args=arguments)
    else:
        server = start_server(
            kind, directory, extra_args=[*arguments, *_tls_options(port, certificates)]
        )
    try:
        if kind == TUNNEL:
            with _tunnel(port, server.port, certificates):
                yield Endpoint(port, certificates)
        else:
            yield Endpoint(port, certificates)
    finally:
        server.stop()


@functools.cache
def _knows_tls(kind: Kind) -> bool:
    """Say whether a server's program is built with TLS: without it, it does not ask for more."""
    command = [str(server_program(kind)), "--port", "0", "--tls-port", str(free_port())]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return "tls-cert-file" in ended.stdout


def _tls_options(port: int, certificates: Certificates) -> list[str]:
    options = {
        "tls-port": port,
        "tls-cert-file": certificates.certificate,
        "tls-key-file": certificates.key,
        "tls-ca-cert-file": certificates.authority,
        "tls-auth-clients": "no",
    }
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


@contextmanager
def _tunnel(port: int, server_port: int, certificates: Certificates) -> Iterator[None]:
    """Take TLS off on a port and pass the rest on, until the end of the block."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    listening: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        ends: set[asyncio.StreamWriter] = set()
        over = asyncio.Event()

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", server_port)
            ends.update((back, writer))
            for way in ((reader, back), (there, writer)):
                copying.create_task(_copy(*way))

        loop = asyncio.get_running_loop()
        # Refused handshakes are what some tests are about; nobody is to be told of them here.
        loop.set_exception_handler(lambda *_: None)
        async with asyncio.TaskGroup() as copying:
            server = await asyncio.start_server(pass_on, "127.0.0.1", port, ssl=context)
            listening.set_result((loop, over))
            await over.wait()
            server.close()
            for end in ends:
                end.transport.abort()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    loop, over = listening.result(20)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(20)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until one of the two sides is gone, then let the other go as well."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
