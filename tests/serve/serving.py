"""What tests of the server share: a small taught model, photos as bytes, a client, and the server as a real process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image
from starlette.testclient import TestClient

from conftest import make_blobs, make_learner
from efcil.serve.app import Settings, build_app

HOST = "http://127.0.0.1"
SIZE = 16
LONGEST = 600  # seconds that anything may take on a machine that is busy; nothing here is about speed


def taught_model(path: Path, *classes: str) -> Path:
    """A model file that knows these classes."""
    path.write_bytes(model_bytes(*classes))
    return path


@cache
def model_bytes(*classes: str) -> bytes:
    """Learnt once; with epochs enough for colours to be told apart."""
    classifier = make_learner("lda", image_size=SIZE, epochs=30, first={"lr": 0.05})
    classifier.partial_fit(*make_blobs(classes, size=SIZE))
    classifier.lessons_[-1]["time"] = "2025-01-01 10:00"
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(Path(folder, "m.efcil"))
        return Path(folder, "m.efcil").read_bytes()


def photo(name: str, seed: int = 1, format: str = "PNG") -> bytes:
    """A photo of this class as the bytes of a file."""
    return as_file(make_blobs([name], 1, size=SIZE, seed=seed)[0][0], format)


def as_file(pixels: Any, format: str = "PNG", **more: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels)).save(file, format, **more)
    return file.getvalue()


def photos(name: str, count: int = 3, seed: int = 1) -> list[tuple[str, tuple[str, bytes]]]:
    """Files of a form."""
    return [("images", (f"secret-{name}-{k}.png", photo(name, seed + k))) for k in range(count)]


def zip_of(members: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


@contextmanager
def client_of(model: Path, **settings: Any) -> Iterator[TestClient]:
    """The application in this process; lessons still have their own."""
    with TestClient(build_app(Settings(model=model, **settings)), HOST) as client:
        yield client


def ended(client: Any, answer: Any, seconds: float = LONGEST) -> dict[str, Any]:
    """The lesson of this answer once it has ended."""
    assert answer.status_code == 202, answer.text
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        lesson: dict[str, Any] = client.get(answer.headers["location"]).json()
        if lesson["status"] in ("done", "failed", "lost"):
            return lesson
        time.sleep(0.05)
    raise AssertionError(f"the lesson is still {lesson}")


class RealServer:
    """`efcil serve` as a user runs it, on a free port."""

    program = (str(Path(sys.executable).with_name("efcil")),)

    def __init__(self, model: Path, *arguments: Any, **environment: str) -> None:
        command = [*self.program, "serve", str(model), "--port", "0", "--json"]
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.address: str = json.loads(line)["address"]
        self.port = int(self.address.rpartition(":")[2])
        # A new line for every request: one that is kept may be closed by the server just when it is used again.
        alone = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(base_url=self.address, timeout=LONGEST, trust_env=False, limits=alone)

    def __enter__(self) -> RealServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        with suppress(subprocess.TimeoutExpired):  # a process that outlives its server would hold the pipe
            self.process.communicate(timeout=LONGEST)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code and what it said on standard error."""
        self.process.send_signal(number)
        said = self.process.communicate(timeout=LONGEST)[1]
        return self.process.returncode, said


def learners(server: int) -> list[int]:
    """The process that learns, if the server with this process id has started one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # others come and go meanwhile
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server and b"spawn_main" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


@contextmanager
def held_back(server: int) -> Iterator[None]:
    """The process that learns gets nowhere meanwhile; one that is started meanwhile is caught before it can begin."""
    over, held = threading.Event(), set[int]()

    def hold() -> None:
        while True:
            for pid in set(learners(server)) - held:
                with suppress(ProcessLookupError):  # of a server that has been stopped
                    os.kill(pid, signal.SIGSTOP)
                    held.add(pid)
            ready.set()
            if over.wait(0.02):
                return

    ready, watching = threading.Event(), threading.Thread(target=hold)
    watching.start()
    try:
        assert ready.wait(LONGEST)
        yield
    finally:
        over.set()
        watching.join()
        for pid in held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def status_until(client: httpx.Client, location: str, wanted: str, seconds: float = LONGEST) -> dict[str, Any]:
    """Wait until a lesson has come so far."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        lesson: dict[str, Any] = client.get(location).json()
        if lesson["status"] == wanted:
            return lesson
        assert lesson["status"] not in ("done", "failed", "lost"), lesson
        time.sleep(0.02)
    raise AssertionError(f"the lesson is still {lesson['status']}")
