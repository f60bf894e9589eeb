"""What every request must pass before it is looked at: who may ask, from where, how much, and for how long.

Cross-site pages and names that lead here by a trick (DNS rebinding) are refused, a token is asked for where the server
has one, bytes are counted as they come, and every answer gets the headers that keep browsers careful.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from efcil.serve.limits import Budget, Limits

SMALL = 64 << 10  # bytes of a request that brings no photos
LINGER = 2.0  # seconds in which what is left of a request is thrown away before an answer, so that it can be read
OPEN = ("/", "/healthz", "/favicon.ico")  # need no token, nor does what is below /page/: the page itself asks for it
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob:; connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Door:
    """Who may come in."""

    names: Sequence[str] = ()  # host names besides localhost and addresses
    token: str | None = None

    def host_known(self, host: str) -> bool:
        """Whether this is a way to call us: a name of ours, or an address, which no DNS can turn into another."""
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".").lower() if host else ""
        if name in ("localhost", *(known.lower() for known in self.names)):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def token_right(self, header: str) -> bool:
        """Compared in a time that tells nothing of the token, not even its length."""
        kind, _, given = header.partition(" ")
        digests = [hashlib.sha256(word.encode()).digest() for word in (given.strip(), self.token or "")]
        return hmac.compare_digest(*digests) and kind.lower() == "bearer" and self.token is not None


class Guard:
    """The ASGI application around the application."""

    def __init__(
        self,
        app: ASGIApp,
        door: Door,
        limits: Limits,
        budget: Budget,
        watch: Callable[[Scope, int, float], None],
        stop: Callable[[], Awaitable[None]],
    ) -> None:
        self.app = app
        self.door = door
        self.limits = limits
        self.budget = budget
        self.watch = watch
        self.stop = stop  # ends lessons, so that those who watch one are not waited for
        self.requests = 0  # that were let in and are not answered yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        passing = Passing(self, scope, receive, send)
        refusal = self.refusal(scope)
        if refusal is None:  # whoever is refused, though it takes a moment, takes nobody's place
            passing.take_place()
        try:
            await passing.go(refusal)
        finally:
            passing.give_place()
            self.budget.give(passing.held)
            self.watch(scope, passing.status, time.monotonic() - passing.begun)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is not let in."""
        headers = Headers(scope=scope)
        if self.requests >= self.limits.requests:
            return 429, f"More than {self.limits.requests} requests at once; try again in a moment."
        host = headers.get("host", "")
        try:
            known = self.door.host_known(host)
        except ValueError:
            known = False
        if not known:
            return 403, "This server is not known under that name; start it with --allow-host NAME, or use its address."
        if cross_site(scope, headers, host):
            return 403, "Requests from pages of other sites are refused; open the page of this server instead."
        path = scope["path"]
        opened = path in OPEN or path.startswith("/page/")
        scope.setdefault("state", {})["known"] = self.door.token is None or self.door.token_right(
            headers.get("authorization", "")
        )
        if not scope["state"]["known"] and not opened:
            return 401, "This server asks for its token; send it in the header Authorization: Bearer TOKEN."
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.most(scope):
            return 413, self.too_large(scope)
        return None

    def most(self, scope: Scope) -> int:
        """Bytes that a request may have."""
        uploads = scope["method"] == "POST" and scope["path"] in ("/predict", "/lessons")
        return self.limits.request_bytes if uploads else SMALL

    def too_large(self, scope: Scope) -> str:
        most = self.most(scope)
        told = f"{most / (1 << 20):g} MB" if most >= 1 << 20 else f"{most / (1 << 10):g} kB"
        return f"A request like this has at most {told}; send less at once."


class Passing:
    """One request on its way through."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self.guard, self.scope, self._receive, self._send = guard, scope, receive, send
        self.begun = time.monotonic()
        self.held = 0  # bytes that came
        self.status = 0  # nothing was answered yet
        headers = Headers(scope=scope)
        bodiless = "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"
        self.whole = bodiless  # all of the request came
        self.uninvited = headers.get("expect", "").lower() == "100-continue"  # asks before it sends its body
        self.timer: asyncio.Timeout | None = None
        self.place = 0  # among the requests that may be under way at once

    def take_place(self) -> None:
        self.place = 1
        self.guard.requests += 1

    def give_place(self) -> None:
        self.guard.requests -= self.place
        self.place = 0

    async def go(self, refusal: tuple[int, str] | None) -> None:
        try:
            async with asyncio.timeout(self.guard.limits.seconds) as self.timer:
                if refusal is not None:
                    await self.answer(*refusal)
                else:
                    await self.guard.app(self.scope, self.receive, self.send)
        except TimeoutError:
            if self.status:
                return  # the rest of the answer is not waited for, and the connection is closed
            seconds = f"{self.guard.limits.seconds:g} seconds"
            await self.answer(408, f"The request took longer than {seconds}; send less at once, or over a faster line.")

    async def receive(self) -> Message:
        self.uninvited = False
        message = await self._receive()
        if message["type"] == "http.request":
            self.whole = not message.get("more_body", False)
            count = len(message.get("body", b""))
            if self.held + count > self.guard.most(self.scope):
                raise HTTPException(413, self.guard.too_large(self.scope))
            if not self.guard.budget.take(count):
                raise HTTPException(429, "Other uploads fill the memory; try again in a moment.")
            self.held += count
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self.linger()
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            if not self.whole:
                headers["Connection"] = "close"  # what else comes of the request is not read
            if headers.get("content-type", "").startswith("text/event-stream") and self.timer is not None:
                self.timer.reschedule(None)
        await self._send(message)

    async def answer(self, status: int, sentence: str) -> None:
        body = json.dumps({"detail": sentence}).encode()
        headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def linger(self) -> None:
        """Throw the rest of the request away for a moment: a sender whose line is cut cannot read the answer.

        That takes nobody's place, and no time from the answer; whoever was too slow or asks first is not waited for.
        """
        if self.whole or self.uninvited or self.timer is None or self.timer.expired():
            return
        self.give_place()
        self.timer.reschedule((self.timer.when() or 0) + LINGER)
        try:
            async with asyncio.timeout(LINGER):
                while not self.whole:
                    message = await self._receive()
                    self.whole = message["type"] != "http.request" or not message.get("more_body", False)
        except TimeoutError:
            pass


def cross_site(scope: Scope, headers: Headers, host: str) -> bool:
    """Whether a page of another site makes a browser send this; following a link to here is no harm."""
    origin = headers.get("origin")
    if origin is not None:
        return origin.lower() != f"{scope['scheme']}://{host}".lower()
    site = headers.get("sec-fetch-site", "none")
    following = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
    return site in ("cross-site", "same-site") and not (following and headers.get("sec-fetch-dest") == "document")
