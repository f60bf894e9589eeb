"""Downloads against a server on this machine: resumed, checked, and explained when they cannot be had."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import random
import socket
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from efcil.data.fetch import download
from efcil.data.fetch.archives import ARCHIVES
from efcil.data.fetch.download import get
from efcil.errors import UserError


class Server(ThreadingHTTPServer):
    """Serves one file under any name; the fields say how badly."""

    content = b""
    ranges = True
    break_after: list[int]  # bytes after which each connection in turn breaks off
    status = 200
    shift = 0  # bytes by which an answer to a range starts too late
    length = True
    asked: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers["Range"]
        server.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
        if server.status != 200 or start > len(server.content):
            self.send_error(416 if server.status == 200 else server.status)
            return
        body = server.content[start + (server.shift if start else 0) :]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start + server.shift}-{len(server.content) - 1}/*")
        if server.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.break_after.pop(0)] if server.break_after else body)

    def log_message(self, *_: object) -> None:
        """No lines between those of the tests."""


def packed(names: tuple[str, ...] = ("train.bin", "test.bin")) -> bytes:
    """An archive that does not compress, so that it has some length."""
    buffer, rng = io.BytesIO(), random.Random(0)
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in names:
            info = tarfile.TarInfo(f"cifar-100-binary/{name}")
            info.size = 100_000
            archive.addfile(info, io.BytesIO(rng.randbytes(info.size)))
    return buffer.getvalue()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.content, server.break_after, server.asked = packed(), [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/cifar-100-binary.tar.gz"
    digest = hashlib.md5(server.content, usedforsecurity=False).hexdigest()
    local = dataclasses.replace(ARCHIVES["cifar100"], url=url, md5=digest)
    monkeypatch.setitem(ARCHIVES, "cifar100", local)
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(download, "TIMEOUT", 300.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()
    thread.join(300)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_get_and_get_again(server: Server, tmp_path: Path) -> None:
    root = tmp_path / "new" / "root"
    seen: list[tuple[int, int | None]] = []
    first = get("cifar100", root, lambda done, total: seen.append((done, total)))
    assert str(first) == f"cifar100 is in {root / 'cifar-100-binary'}."
    assert names(root) == ["cifar-100-binary"] and (first.folder / "train.bin").stat().st_size == 100_000
    size = len(server.content)
    assert seen[-1] == (size, size) and seen == sorted(seen)
    again = get("cifar100", root)
    assert again.already_there and "already" in str(again)
    assert get("cifar100", root / "cifar-100-binary").already_there  # root may be the folder itself
    assert len(server.asked) == 1


def test_broken_connection_is_resumed_at_once(server: Server, tmp_path: Path) -> None:
    server.break_after = [50_000, 20_000]
    get("cifar100", tmp_path)
    assert server.asked == [None, "bytes=50000-", "bytes=70000-"]
    assert names(tmp_path) == ["cifar-100-binary"]


def test_download_goes_on_in_a_later_call(server: Server, tmp_path: Path) -> None:
    server.break_after = [1000] * download.ATTEMPTS
    with pytest.raises(UserError, match=r"broke off after 5,000 of .* try again later to go on"):
        get("cifar100", tmp_path)
    assert names(tmp_path) == ["cifar-100-binary.tar.gz.partial"]
    get("cifar100", tmp_path)
    assert server.asked[-1] == "bytes=5000-"


def test_server_without_ranges_starts_anew(server: Server, tmp_path: Path) -> None:
    server.ranges, server.break_after = False, [50_000]
    get("cifar100", tmp_path)
    assert server.asked == [None, "bytes=50000-"] and names(tmp_path) == ["cifar-100-binary"]


def test_server_that_does_not_say_the_length(server: Server, tmp_path: Path) -> None:
    server.length = False
    totals = set()
    get("cifar100", tmp_path, lambda done, total: totals.add(total))
    assert totals == {None}


def test_wrong_range_starts_anew(server: Server, tmp_path: Path) -> None:
    server.shift, server.break_after = 7, [50_000]
    with pytest.raises(UserError, match="wrong place"):
        get("cifar100", tmp_path)
    get("cifar100", tmp_path)
    assert server.asked == [None, "bytes=50000-", None]


def test_partial_file_that_is_too_long_is_thrown_away(server: Server, tmp_path: Path) -> None:
    partial = tmp_path / "cifar-100-binary.tar.gz.partial"
    partial.write_bytes(server.content + b"x")
    with pytest.raises(UserError, match="416"):
        get("cifar100", tmp_path)
    get("cifar100", tmp_path)
    assert names(tmp_path) == ["cifar-100-binary"]


def test_killed_just_before_the_rename(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-100-binary.tar.gz.partial").write_bytes(server.content)
    get("cifar100", tmp_path)
    assert server.asked == [] and names(tmp_path) == ["cifar-100-binary"]


def test_wrong_checksum(server: Server, tmp_path: Path) -> None:
    server.content = server.content[:-1] + b"!"
    with pytest.raises(UserError, match=r"md5 \w{32} instead of \w{32}"):
        get("cifar100", tmp_path)
    assert names(tmp_path) == []


def test_endless_answer_is_cut_off(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARCHIVES, "cifar100", dataclasses.replace(ARCHIVES["cifar100"], max_bytes=1000))
    with pytest.raises(UserError, match="far more"):
        get("cifar100", tmp_path)


@pytest.mark.parametrize("status", [404, 503])
def test_server_that_refuses(server: Server, tmp_path: Path, status: int) -> None:
    server.status = status
    with pytest.raises(UserError, match=f"answers {status}.*by hand"):
        get("cifar100", tmp_path)


def test_offline_says_what_to_do_and_accepts_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/cifar-100-binary.tar.gz"  # bound, but nobody listens
        monkeypatch.setitem(ARCHIVES, "cifar100", dataclasses.replace(ARCHIVES["cifar100"], url=url))
        with pytest.raises(UserError) as caught:
            get("cifar100", tmp_path)
    file = tmp_path / "cifar-100-binary.tar.gz"
    message = str(caught.value)
    assert url in message and f"put it at {file}" in message and "run the same command again" in message
    file.write_bytes(b"something else")
    with pytest.raises(UserError, match="delete it and try again"):
        get("cifar100", tmp_path)
    assert file.exists()
    file.write_bytes(server.content)
    assert not get("cifar100", tmp_path).already_there
    assert names(tmp_path) == ["cifar-100-binary", "cifar-100-binary.tar.gz"]  # what a user brought stays
    assert server.asked == []


def test_silent_server_times_out(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/cifar-100-binary.tar.gz"
        monkeypatch.setitem(ARCHIVES, "cifar100", dataclasses.replace(ARCHIVES["cifar100"], url=url))
        with pytest.raises(UserError, match=r"timed out.*by hand"):
            get("cifar100", tmp_path)


def test_bad_targets(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-100-binary").mkdir()
    with pytest.raises(UserError, match=r"holds no train\.bin; move it away"):
        get("cifar100", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        get("cifar100", tmp_path / "file")
    with pytest.raises(UserError, match="cannot be fetched automatically; it is expected as"):
        get("imagenet-1k", tmp_path)
    with pytest.raises(UserError, match="did you mean"):
        get("cifar10", tmp_path)


def test_addresses_are_the_official_ones() -> None:
    assert {name: archive.file for name, archive in ARCHIVES.items()} == {
        "cifar100": "cifar-100-binary.tar.gz",
        "tiny-imagenet": "tiny-imagenet-200.zip",
    }
