"""The server as a process: a socket, signals, and an end in which nobody is cut off."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from efcil.engine.locks import locked
from efcil.engine.state import remove_partial
from efcil.errors import UserError
from efcil.serve.app import Settings, build_app
from efcil.serve.jobs import Jobs
from efcil.teaching.new import new_classifier
from efcil.teaching.store import Store

SHORTEST_TOKEN = 16
GRACE = 30  # seconds that running requests get after a signal to stop


def serve(
    settings: Settings, host: str, port: int, certificate: Path | None, key: Path | None, ready: Callable[[str], None]
) -> None:
    """Serve until a signal to stop comes; ``ready`` is told the address."""
    model = Store(settings.model).path
    if not model.parent.is_dir():
        raise UserError(f"There is no folder {model.parent}; make it first, or choose another place.")
    busy = f"{model} is served already; stop that server first."
    with locked(model.with_name(f".{model.name}.serve.lock"), busy):
        remove_partial(model.parent, f"{Jobs(model).path.name}.")  # of a server that was killed while it wrote the list
        check(settings)
        app = build_app(settings)
        config = uvicorn.Config(
            app,
            http=patient_protocol(settings.limits.seconds),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_level="warning",
            access_log=False,  # it would hold names of classes, and whatever else somebody puts into an address
            server_header=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=GRACE,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        try:
            config.load()
        except (OSError, ValueError) as error:  # of the certificate
            raise UserError(f"The certificate or its key cannot be used ({error}); check the files.") from None
        bound = listening(host, port)
        scheme = "https" if certificate else "http"
        name = f"[{host}]" if ":" in host else host
        address = f"{scheme}://{name}:{bound.getsockname()[1]}"
        server = Server(config, app.stop, lambda: ready(address))
        server.run(sockets=[bound])


def check(settings: Settings) -> None:
    """Say what is wrong with the model, or with the choices for a new one, before anybody can ask anything."""
    store = Store(settings.model)
    if store.exists:
        taught = store.load().lessons_
    else:
        _ = new_classifier(**settings.choices).stored_size  # needs the weights of its network
        taught = []
    Jobs(settings.model).read(taught)


def listening(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 0xFFFF:
        raise UserError(f"--port must lie between 0 and 65535, not {port}.")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UserError(
            f"{host}:{port} cannot be listened at ({error.strerror}); choose another --host or --port."
        ) from None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(file: Path | None) -> str | None:
    """The token from a file, or from EFCIL_TOKEN; never from the command line, which others can see."""
    if file is not None:
        try:
            token = file.read_text().strip()
        except (OSError, ValueError) as error:
            raise UserError(f"The token cannot be read from {file} ({error}).") from None
    else:
        token = os.environ.get("EFCIL_TOKEN", "").strip()
    if not token and file is None:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        told = f"The token must have at least {SHORTEST_TOKEN} letters and digits without blanks"
        raise UserError(f"{told}; make one with: openssl rand -hex 16.")
    return token


class Server(uvicorn.Server):
    """Ends lessons as soon as it is told to stop, so that those who watch one hear of it."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], Awaitable[None]], ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.stop = stop
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Not noted as a signal to be raised again: stopping a server is what a signal is for, and no failure."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.stop()
        await super().shutdown(sockets)


def patient_protocol(seconds: float) -> type[asyncio.Protocol]:
    """HTTP/1.1 that gives a client only so long to say what it wants."""

    class Patient(H11Protocol):
        waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def watch(self) -> None:
            """The clock runs while the head of a request has begun, or the first is awaited, and is not whole."""
            if self.conn.their_state is not h11.IDLE:
                self.forget()
            elif self.waiting is None:
                self.waiting = self.loop.call_later(seconds, self.transport.abort)

        def forget(self) -> None:
            if self.waiting is not None:
                self.waiting.cancel()
                self.waiting = None

        def connection_lost(self, exc: Exception | None) -> None:
            self.forget()
            super().connection_lost(exc)

    return Patient
