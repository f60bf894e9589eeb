"""The server as a process: how it stops, what a kill leaves, how long a slow client gets, and what is on disk."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from conftest import make_blobs, make_learner, run_cli
from efcil.engine import state
from efcil.teaching.answers import holds_pixels
from efcil.teaching.store import Store
from serving import LONGEST, RealServer, ended, learners, photo, photos, status_until, taught_model

pytestmark = pytest.mark.slow

LINGER = 15  # seconds; those that the program has are too few for tests on a busy machine


class Lingering(RealServer):
    """Waits longer for the rest of a request."""

    code = f"from efcil.serve import guard; guard.LINGER = {LINGER}; from efcil.cli import main; main()"
    program = (sys.executable, "-c", code)


def slow_model(path: Path) -> Path:
    """A model whose next lesson takes for ever."""
    classifier = make_learner("finetune", image_size=16, incremental={"epochs": 1_000_000})
    classifier.partial_fit(*make_blobs(["cat", "dog"], size=16)).save(path)
    return path


@contextmanager
def connection(server: RealServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST) as line:
        yield line


def upload(path: str, body: bytes, host: str = "127.0.0.1") -> bytes:
    """A whole request as it goes over the line."""
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: multipart/form-data; boundary=edge\r\n\r\n".encode() + body


def form(name: str, content: bytes) -> bytes:
    head = f'--edge\r\nContent-Disposition: form-data; name="images"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--edge--\r\n"


def answer_of(line: socket.socket) -> bytes:
    """Everything that is said until the other side closes or has said its whole answer."""
    said = b""
    while part := line.recv(65536):
        said += part
        head, split, body = said.partition(b"\r\n\r\n")
        length = [int(row.split(b":")[1]) for row in head.split(b"\r\n") if row.lower().startswith(b"content-length")]
        if split and length and len(body) >= length[0]:
            break
    return said


def gone(pid: int, seconds: float = LONGEST) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def learning(server: RealServer, location: str, seconds: float = LONGEST) -> None:
    """Wait until the other process is in the middle of a lesson."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        progress = server.client.get(location).json()["progress"]
        if progress and progress["stage"] == "learning":
            return
        time.sleep(0.05)
    raise AssertionError("the lesson does not begin")


def held(server: RealServer) -> float:
    """Bytes of uploads and of lessons that the server has in memory."""
    return float(re.findall(r"^efcil_held_bytes (\S+)$", server.client.get("/metrics").text, re.MULTILINE)[0])


def begin(server: RealServer, line: socket.socket, part: bytes) -> None:
    """Send a part of a request, and wait until the server has it."""
    before, until = held(server), time.monotonic() + LONGEST
    line.sendall(part)
    while held(server) == before:
        assert time.monotonic() < until, "the upload does not arrive"
        time.sleep(0.02)


def test_a_stop_answers_what_runs_and_ends_the_lesson(tmp_path: Path) -> None:
    model = slow_model(tmp_path / "pets.efcil")
    before = model.read_bytes()
    with RealServer(model) as server:
        first = server.client.post("/lessons", data={"name": "bird"}, files=photos("bird"))
        waiting = server.client.post("/lessons", data={"name": "cow"}, files=photos("cow"))
        learning(server, first.headers["location"])
        [learner] = learners(server.process.pid)
        request = upload("/predict", form("a.png", photo("cat")))
        events = {"Accept": "text/event-stream"}
        with connection(server) as line, server.client.stream("GET", first.headers["location"], headers=events) as told:
            begin(server, line, request[:-40])
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            line.sendall(request[-40:])
            assert b"200 OK" in answer_of(line)
            last = [text for text in told.iter_lines() if text.startswith("data: ")][-1]
        assert '"failed"' in last and "The server was stopped before this lesson was done" in last
        assert server.process.wait(LONGEST) == 0
        assert gone(learner)
        with pytest.raises(httpx.ConnectError):
            server.client.get("/healthz")
    assert model.read_bytes() == before
    with RealServer(model) as server:
        kept = server.client.get("/lessons").json()["lessons"]
        assert [(row["id"], row["status"]) for row in kept] == [
            (first.json()["id"], "failed"),
            (waiting.json()["id"], "failed"),
        ]
        assert all("The server was stopped" in row["error"] for row in kept)
        assert server.stop(signal.SIGINT)[0] == 0


def test_a_kill_while_learning_leaves_the_model_and_the_list_says_so(tmp_path: Path) -> None:
    model = slow_model(tmp_path / "pets.efcil")
    before = model.read_bytes()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with RealServer(model, TMPDIR=str(temporary)) as server:
        running = server.client.post("/lessons", data={"name": "bird"}, files=photos("bird"))
        waiting = server.client.post("/lessons", data={"name": "cow"}, files=photos("cow"))
        learning(server, running.headers["location"])
        [learner] = learners(server.process.pid)
        assert open_files(server.process.pid) | open_files(learner) <= {tmp_path / ".pets.efcil.serve.lock"} | {
            tmp_path / ".pets.efcil.lock"
        }
        server.process.kill()
        server.process.wait()
        assert gone(learner), "the process that learns goes on without its server"
    assert model.read_bytes() == before
    nothing_of_photos(tmp_path, ["bird", "cow"])
    with RealServer(model) as server:
        kept = server.client.get("/lessons").json()["lessons"]
        assert {row["id"]: row["status"] for row in kept} == {
            running.json()["id"]: "lost",
            waiting.json()["id"]: "lost",
        }
        assert all("as it was before it" in row["error"] for row in kept)
        assert [row["class"] for row in server.client.get("/classes").json()["classes"]] == ["cat", "dog"]
        assert server.client.get("/healthz").json()["learning"] is False


def test_a_learner_that_dies_fails_its_lesson_only(tmp_path: Path) -> None:
    model = taught_model(tmp_path / "pets.efcil", "cat", "dog")
    with RealServer(model) as server:
        ended(server.client, server.client.post("/lessons", data={"name": "bird"}, files=photos("bird")))
        [learner] = learners(server.process.pid)
        os.kill(learner, signal.SIGSTOP)
        sent = server.client.post("/lessons", data={"name": "cow"}, files=photos("cow"))
        status_until(server.client, sent.headers["location"], "running")
        assert server.client.post("/predict", files=photos("cat", 1)).status_code == 200  # predictions go on
        os.kill(learner, signal.SIGKILL)
        failed = ended(server.client, sent)
        assert failed["status"] == "failed" and "exit code -9" in failed["error"]
        again = server.client.post("/lessons", data={"name": "cow"}, files=photos("cow"))
        assert ended(server.client, again)["status"] == "done"
        assert run_cli("serve", model, "--port", "0").returncode == 2  # one server for a model


def test_a_start_takes_nothing_from_a_command_that_is_writing_the_model(tmp_path: Path) -> None:
    model = taught_model(tmp_path / "pets.efcil", "cat", "dog")
    versions = tmp_path / "pets.efcil.versions"
    versions.mkdir()
    written, left = (tmp_path / f".pets.efcil{part}.12.partial" for part in ("", ".lessons.json"))
    with Store(model).changing():
        for path in (written, left, versions / ".0001.efcil.12.partial"):
            path.write_bytes(b"half")
        with RealServer(model):
            assert written.exists() and (versions / ".0001.efcil.12.partial").exists()
            assert not left.exists()  # only a server writes the list, and there is one


def test_a_slow_client_is_not_waited_for(tmp_path: Path) -> None:
    with RealServer(taught_model(tmp_path / "pets.efcil", "cat", "dog"), "--limit", "seconds=10") as server:
        with connection(server) as body, connection(server) as head, connection(server) as mute:
            begun = time.monotonic()
            body.sendall(upload("/predict", form("a.png", photo("cat")))[:-100])
            head.sendall(b"GET /classes HTTP/1.1\r\nHost: 127")
            assert server.client.post("/predict", files=photos("cat", 1)).status_code == 200  # others are served
            said = answer_of(body)
            assert said.startswith(b"HTTP/1.1 408") and b"took longer than 10 seconds" in said
            assert not head.recv(100) and not mute.recv(100)
            assert time.monotonic() - begun < 55  # not the 60 seconds that everybody has otherwise
        with connection(server) as line:  # a second request on a line is watched like the first
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert answer_of(line).startswith(b"HTTP/1.1 200")
            line.sendall(b"GET /heal")
            assert not line.recv(100)
        assert server.client.get("/healthz").status_code == 200
    assert sorted(path.name for path in tmp_path.iterdir()) == [".pets.efcil.serve.lock", "pets.efcil"]


def test_an_answer_that_needs_no_body_waits_for_it(tmp_path: Path) -> None:
    """Closing a line on which bytes are still coming would take the answer from whoever sends them."""
    with Lingering(taught_model(tmp_path / "pets.efcil", "cat", "dog")) as server:
        whole = upload("/predict", form("a.png", photo("cat"))).replace(b"POST", b"TRACE", 1)
        with connection(server) as line:
            line.sendall(whole[:-100])
            time.sleep(0.5)
            line.sendall(whole[-100:])
            assert answer_of(line).startswith(b"HTTP/1.1 405")
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert answer_of(line).startswith(b"HTTP/1.1 200")


def let_in(server: RealServer, path: str, seconds: float) -> bool:
    """Whether a request is answered within this time; the place of one before it is free a moment after its answer."""
    until = time.monotonic() + seconds
    while (status := server.client.get(path).status_code) == 429 and time.monotonic() < until:
        time.sleep(0.05)
    return status == 200


def test_waiting_for_a_body_takes_nobodys_place(tmp_path: Path) -> None:
    model = taught_model(tmp_path / "pets.efcil", "cat", "dog")
    with Lingering(model, "--limit", "requests=1") as server, connection(server) as line:
        assert let_in(server, "/", LONGEST) and let_in(server, "/classes", LONGEST)  # from here on it answers at once
        line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n")
        line.settimeout(0.1)
        with pytest.raises(TimeoutError):  # it is waited for
            line.recv(1)
        assert let_in(server, "/classes", LINGER - 1)
        line.settimeout(LONGEST)
        assert answer_of(line).startswith(b"HTTP/1.1 200")


def test_a_body_that_is_not_wanted_is_not_invited(tmp_path: Path) -> None:
    with RealServer(taught_model(tmp_path / "pets.efcil", "cat", "dog")) as server, connection(server) as line:
        line.sendall(upload("/nowhere", b"x" * 1000)[:-1000].replace(b"\r\n", b"\r\nExpect: 100-continue\r\n", 1))
        assert answer_of(line).startswith(b"HTTP/1.1 404")


def test_after_lessons_no_photo_is_on_disk(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    model = taught_model(tmp_path / "pets.efcil", "cat", "dog")
    with RealServer(model, TMPDIR=str(temporary)) as server:
        for name in ("bird", "cow"):
            lesson = ended(server.client, server.client.post("/lessons", data={"name": name}, files=photos(name)))
            assert lesson["status"] == "done"
            server.client.post("/predict", files=photos(name))
        home = server.client.get("/model").content
        refused = server.client.post("/lessons", data={"name": "cow"}, files={"images": ("secret-x.png", b"broken")})
        assert refused.status_code == 415
        (tmp_path / "home.efcil").write_bytes(home)
        nothing_of_photos(tmp_path, ["bird", "cow"])
        code, said = server.stop()
    assert code == 0 and "secret" not in said
    nothing_of_photos(tmp_path, ["bird", "cow"])
    for file in [tmp_path / "home.efcil", model, *tmp_path.glob("pets.efcil.versions/*.efcil")]:
        assert not holds_pixels(file)


def test_a_kill_during_an_upload_leaves_no_photo(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    noise = np.random.default_rng(0).integers(0, 255, (1200, 1200, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    model = taught_model(tmp_path / "pets.efcil", "cat", "dog")
    with RealServer(model, TMPDIR=str(temporary)) as server, connection(server) as line:
        begin(server, line, upload("/lessons", form("secret-noise.png", file.getvalue()))[:-1000])
        assert open_files(server.process.pid) == {tmp_path / ".pets.efcil.serve.lock"}
        server.process.kill()
        server.process.wait()
    nothing_of_photos(tmp_path, [], extra=[file.getvalue()[1000:1100], noise[5].tobytes()[:100]])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".pets.efcil.serve.lock", "pets.efcil", "temporary"]


def open_files(pid: int) -> set[Path]:
    """Files on disk that a process has open, deleted ones included; what programs and libraries are made of is not."""
    found = set()
    programs = ("/dev", "/proc", "/sys", sys.prefix, sys.base_prefix, str(Path(state.__file__).parents[1]))
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it may have been closed since they were listed
            target = os.readlink(descriptor)
            if target.startswith("/") and not target.startswith(programs):
                found.add(Path(target))
    return found


def nothing_of_photos(folder: Path, names: list[str], extra: list[bytes] | None = None) -> None:
    """Walk everything below: no file of a photo, no pixels of one, no thumbnail, no name of one."""
    signs = [b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"WEBP", b"secret-", *(extra or [])]
    for name in names:
        for _, (_, content) in photos(name):
            pixels = np.asarray(Image.open(io.BytesIO(content)))
            signs += [content[50:90], pixels[3].tobytes(), pixels[..., 0][3:6].tobytes()]
    looked = 0
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            found = [sign for sign in signs if sign in content]
            assert not found, f"{path} holds {found}"
            assert "secret" not in path.name
            looked += 1
            if path.suffix == ".efcil":
                tensors, _ = state.read(path, "classifier")
                assert not any(tensor.element_size() == 1 for tensor in tensors.values())
    assert looked >= 1


def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    try:
        made: Any = subprocess.run(
            [*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert made.returncode == 0, made.stderr
    model = taught_model(tmp_path / "pets.efcil", "cat", "dog")
    with RealServer(model, "--tls-cert", certificate, "--tls-key", key) as server:
        assert server.address.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=server.address, verify=trusted, timeout=LONGEST, trust_env=False) as client:
            assert client.get("/healthz").json()["status"] == "ok"
            assert client.get("/classes", headers={"Origin": server.address}).status_code == 200
            assert client.get("/classes", headers={"Origin": f"http://127.0.0.1:{server.port}"}).status_code == 403
        until = time.monotonic() + LONGEST
        while not well_in_container(server.port):  # it is asked again and again, as a busy machine may take its time
            assert time.monotonic() < until
    assert not well_in_container(server.port)


def well_in_container(port: int) -> bool:
    """What the health check that docs/container.md gives for HTTPS says of a server."""
    page = Path(__file__).parents[2] / "docs/container.md"
    (check,) = re.findall(r"--health-cmd '(.*)'", page.read_text())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = ["sh", "-c", check.replace("127.0.0.1:8000", f"127.0.0.1:{port}")]
    return subprocess.run(words, env={**os.environ, "PATH": path}, capture_output=True, check=False).returncode == 0
