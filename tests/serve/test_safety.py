"""What strangers may send: each fault gets its 4xx and one sentence, and leaves nothing on disk."""

from __future__ import annotations

import io
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from efcil.commands.serve import serve
from efcil.errors import UserError
from efcil.serve.app import Settings, build_app
from efcil.serve.guard import Door, Passing
from efcil.serve.limits import Budget, Limits, changed_limits
from efcil.serve.run import is_loopback, read_token
from serving import HOST, as_file, client_of, photo, photos, taught_model, zip_of

TOKEN = "0123456789abcdef0123456789abcdef"
LIMITS = Limits(
    request_mb=1, megapixels=0.05, photos=5, archive_members=6, expanded_mb=0.5, name_characters=40, memory_mb=4
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a model, which each test finds, whichever comes first."""
    folder = tmp_path_factory.mktemp("served")
    taught_model(folder / "pets.efcil", "cat", "dog")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    """A server with narrow limits. Nothing that is sent to it here is let in."""
    with client_of(folder / "pets.efcil", limits=LIMITS) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_is_left(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test leaves a file beside the model or among temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    before = set(folder.rglob("*"))
    yield
    assert set(folder.rglob("*")) | set((tmp_path / "temporary").iterdir()) == before


def bomb(side: int = 1000) -> bytes:
    """A small file of many pixels."""
    return as_file(np.zeros((side, side), np.uint8))


def claimed_bomb() -> bytes:
    """A file of a few bytes that says it has 10¹² pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 1_000_000, 1_000_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 10) + b"IDAT" + bytes(14)


def postscript() -> bytes:
    return b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


def understated() -> bytes:
    """A zip whose only photo expands to far more than it says."""
    whole = bytearray(zip_of({"cat/1.png": bytes(50 << 20)}))
    for sign, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<I", whole, whole.rfind(sign) + place, 100)
    return bytes(whole)


def long_list() -> bytes:
    """A zip whose list of files says it is 100 MB long."""
    whole = bytearray(zip_of({"cat/1.png": photo("cat")}))
    struct.pack_into("<I", whole, whole.rfind(b"PK\5\6") + 12, 100 << 20)
    return bytes(whole)


def zip64() -> bytes:
    """A zip whose true length is told in a second record."""
    whole = zip_of({"cat/1.png": photo("cat")})
    end = whole.rfind(b"PK\5\6")
    return whole[:end] + b"PK\6\7" + bytes(16) + whole[end:]


FAULTS: list[tuple[str, bytes, int, str]] = [
    ("big.png", bomb(), 413, "has 1,000 × 1,000 pixels, more than 50,000"),
    ("huge.png", claimed_bomb(), 413, "has more pixels than any photo"),
    ("broken.png", photo("cat")[:200], 422, "cannot be read as an image"),
    ("broken.jpg", as_file(np.zeros((99, 99, 3), np.uint8), "JPEG")[:300], 422, "cannot be read as an image"),
    ("empty.jpg", b"", 415, "no known format"),
    ("text.jpg", b"not a photo at all", 415, "no known format"),
    ("page.svg", b"<svg onload='alert(1)'/>", 415, "no known format"),
    ("program.eps", postscript(), 415, "no known format"),
    ("../../etc/passwd", b"root:x:0:0", 415, "no known format"),
]
ARCHIVES: list[tuple[bytes, int, str]] = [
    (b"not a zip", 415, "cannot be read as a zip"),
    (zip_of({f"cat/{k}.png": b"" for k in range(7)}), 413, "lists more than 6 files"),
    (zip_of({"cat/1.png": bytes(1 << 20)}), 413, "expands to more than 0.5 MB"),
    (understated(), 422, "cannot be read"),
    (long_list(), 413, "lists more than 6 files"),
    (zip64(), 413, "lists more than 6 files"),
    (zip_of({"cat/1.png": photo("cat")}, zipfile.ZIP_BZIP2), 422, "unusual way"),
    (zip_of({"../cat/1.png": photo("cat")}), 422, "leads out of it"),
    (zip_of({"/etc/cat/1.png": photo("cat")}), 422, "leads out of it"),
    (zip_of({"1.png": photo("cat")}), 422, "class folders"),
    (zip_of({"readme.txt": b"?"}), 422, "class folders"),
    (zip_of({"cat/1.png": b"?"}), 415, "no known format"),
    (zip_of({"cat/1.png": bomb()}), 413, "more than 50,000"),
    (zip_of({"<b>/1.png": photo("cat")}), 422, "< or >"),
    (zip_of({f"{'x' * 41}/1.png": photo("cat")}), 413, "at most 40 characters"),
    (zip_of({f"cat/{k}.png": photo("cat") for k in range(6)}), 413, "at most 5 photos"),
]


def refusal(answer: Any, status: int, sentence: str) -> None:
    """One sentence, and the status for it."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"detail"}
    detail = answer.json()["detail"]
    assert sentence in detail and detail.endswith((".", "?")) and "\n" not in detail and len(detail) < 400


@pytest.mark.parametrize(("name", "content", "status", "sentence"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_photos(client: TestClient, name: str, content: bytes, status: int, sentence: str) -> None:
    files = [("images", ("good.png", photo("cat"))), ("images", (name, content))]
    refusal(client.post("/predict", files=files), status, sentence)
    refusal(client.post("/lessons", data={"name": "cat"}, files=files), status, sentence)


@pytest.mark.parametrize(("content", "status", "sentence"), ARCHIVES)
def test_archives(client: TestClient, content: bytes, status: int, sentence: str) -> None:
    refusal(client.post("/lessons", files={"archive": ("a.zip", content)}), status, sentence)


@pytest.mark.parametrize(
    ("name", "status", "sentence"),
    [
        ("x" * 10_000, 413, "at most 40 characters, this one has 10,000"),
        ("<img src=x onerror=alert(1)>", 422, "< or >"),
        (" \t ", 422, "is empty"),
        ("", 422, "is empty"),
        ("a\nb", 422, "control characters"),
        ("gpj.\u202eexe", 422, "control characters"),
        ("a\0", 422, "control characters"),
        ("..", 422, "mean folders"),
    ],
)
def test_names(client: TestClient, name: str, status: int, sentence: str) -> None:
    refusal(client.post("/lessons", data={"name": name}, files=photos("cat", 1)), status, sentence)
    refusal(client.patch("/classes/cat", json={"name": name}), status, sentence)


def test_forms(client: TestClient) -> None:
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    refusal(client.post("/predict", content=b"x" * (2 << 20), headers=form), 413, "at most 1 MB")
    refusal(client.post("/predict", content=iter([b"x" * 65536] * 20), headers=form), 413, "at most 1 MB")
    refusal(client.post("/predict", content=b"half a form", headers=form), 422, "The form cannot be read")
    refusal(client.post("/predict", content=b"", headers={"Content-Type": "multipart/form-data"}), 422, "boundary")
    refusal(client.post("/predict", json={}), 415, "multipart/form-data")
    refusal(client.post("/predict"), 415, "multipart/form-data")
    refusal(client.post("/predict", files=photos("cat", 6)), 413, "at most 5 photos")
    refusal(client.post("/predict", files={"else": ("a.png", photo("cat"))}), 422, "unexpected field 'else'")
    refusal(client.post("/predict", data={"images": "words"}, files={"images": b""}), 422, "unexpected field 'images'")
    refusal(client.post("/lessons", files=photos("cat", 1)), 422, "Send either")
    refusal(client.post("/lessons", data={"name": "cat"}, files={"archive": ("a.zip", b"?")}), 422, "Send either")
    refusal(client.post("/lessons", data={"name": "cat"}, files={"images": ("", b"")}), 422, "")
    long = {"Content-Type": "application/json"}
    refusal(client.patch("/classes/cat", content=b"\xf1{", headers=long), 400, "cannot be read as JSON")
    refusal(client.patch("/classes/cat", content=b" " * 70_000, headers=long), 413, "at most 64 kB")
    refusal(client.patch("/classes/cat", content=iter([b" " * 70_000]), headers=long), 413, "at most 64 kB")


def test_the_memory_of_all_together_is_bounded(client: TestClient) -> None:
    desk_budget: Budget = client.app.budget  # type: ignore[attr-defined]
    assert desk_budget.taken == 0
    assert desk_budget.take(desk_budget.whole - 100)
    try:
        refusal(client.post("/predict", files=photos("cat", 1)), 429, "try again in a moment")
    finally:
        desk_budget.give(desk_budget.whole - 100)
    assert client.post("/predict", files=photos("cat", 1)).status_code == 200
    assert desk_budget.taken == 0


def test_an_upload_is_never_put_on_disk(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment: the largest form that is let in is read without any temporary file."""

    def on_disk(*given: Any, **named: Any) -> Any:
        raise AssertionError("a temporary file was opened")

    monkeypatch.setattr(tempfile, "TemporaryFile", on_disk)
    noise = np.random.default_rng(0).integers(0, 255, (99, 99, 3), np.uint8)
    large = as_file(noise) + bytes(900_000)  # what follows a PNG is ignored
    answer = client.post("/predict", files={"images": ("large.png", large)})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[", "pets.local"])
def test_other_names_for_this_address_are_refused(client: TestClient, host: str) -> None:
    """As a page has it that lets its own name lead here (DNS rebinding)."""
    refusal(client.get("/classes", headers={"Host": host}), 403, "not known under that name")


def test_known_names(folder: Path) -> None:
    door = Door(["Pets.local"])
    for host in ("127.0.0.1:1", "localhost:8000", "LOCALHOST.", "[::1]:80", "192.168.1.7", "pets.LOCAL:8000"):
        assert door.host_known(host)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "https://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_pages_of_other_sites_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    refusal(client.post("/undo", headers=headers), 403, "pages of other sites")
    refusal(client.get("/model", headers=headers), 403, "pages of other sites")


def test_the_own_page_and_links_are_let_in(client: TestClient) -> None:
    assert client.get("/classes", headers={"Origin": HOST, "Sec-Fetch-Site": "same-origin"}).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get("/", headers=link).status_code == 200


def test_headers(client: TestClient) -> None:
    refused = client.get("/classes", headers={"Origin": "null"})
    for answer in (client.get("/"), client.get("/classes"), client.get("/nowhere"), refused):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers
    assert client.get("/classes").headers["cache-control"] == "no-store"


def test_token(folder: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    with client_of(folder / "pets.efcil", door=Door([], TOKEN)) as client:
        for given in (None, TOKEN, f"Basic {TOKEN}", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"):
            answer = client.get("/classes", headers={} if given is None else {"Authorization": given})
            refusal(answer, 401, "Authorization: Bearer")
            assert answer.headers["www-authenticate"] == "Bearer"
        refusal(client.get(f"/classes?token={TOKEN}"), 401, "token")
        assert client.get("/classes", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/").status_code == client.get("/page/index.html").status_code == 200
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/healthz", headers={"Authorization": f"bearer {TOKEN}"}).json()["classes"] == 2
        for path in ("/predict", "/lessons", "/undo"):
            assert client.post(path).status_code == 401
        for path in ("/model", "/metrics", "/lessons", "/openapi.json"):
            assert client.get(path).status_code == 401
    said = capsys.readouterr()
    assert TOKEN not in caplog.text + said.out + said.err


def test_where_tokens_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EFCIL_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("EFCIL_TOKEN", f" {TOKEN}\n")
    assert read_token(None) == TOKEN
    for wrong in ("", "short", f"{TOKEN} {TOKEN}", "ä" * 20):
        (tmp_path / "token").write_text(wrong)
        with pytest.raises(UserError, match="at least 16"):
            read_token(tmp_path / "token")
    with pytest.raises(UserError, match="cannot be read"):
        read_token(tmp_path / "none")


def test_another_address_needs_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EFCIL_TOKEN", raising=False)
    args = served_arguments(tmp_path / "m.efcil", "--host", "0.0.0.0")
    with pytest.raises(UserError, match="give a token"):
        serve(args)
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("192.168.0.2") and not is_loopback("pets.local")
    with pytest.raises(UserError, match="belong together"):
        serve(served_arguments(tmp_path / "m.efcil", "--tls-cert", "c.pem"))
    (tmp_path / "c.pem").write_text("no certificate")
    both = ["--tls-cert", str(tmp_path / "c.pem"), "--tls-key", str(tmp_path / "c.pem"), "--port", "0"]
    with pytest.raises(UserError, match="certificate or its key"):
        serve(served_arguments(tmp_path / "m.efcil", *both))


def test_what_cannot_be_served_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "m.efcil").write_text("no model")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    for model, given, sentence in (
        ("m.efcil", [], "is not an efcil model"),
        ("none/m.efcil", [], "There is no folder"),
        ("new.efcil", ["--backbone", "resnet99"], "resnet99"),
        ("new.efcil", ["--port", "99999"], "between 0 and 65535"),
        ("new.efcil", ["--host", "127.0.0.1.invalid", "--token-file", str(token)], "cannot be listened at"),
        ("new.efcil", ["--batch-ms", "-1"], "--batch-ms"),
    ):
        with pytest.raises(UserError, match=sentence):
            serve(served_arguments(tmp_path / model, *given))
    (tmp_path / "new.efcil.lessons.json").write_text("damaged")
    with pytest.raises(UserError, match="move it away"):
        serve(served_arguments(tmp_path / "new.efcil"))


def served_arguments(model: Path, *given: str) -> Any:
    from efcil.cli import parser

    return parser().parse_args(["serve", str(model), *given])


def test_limits_from_the_command_line() -> None:
    assert changed_limits(["photos=7", "request_mb=0.5"]) == Limits(photos=7, request_mb=0.5)
    for wrong in ("photo=7", "photos=0", "photos=1.5", "photos=", "seconds=nan", "seconds=-1", "request_mb=inf"):
        with pytest.raises(UserError, match="limit"):
            changed_limits([wrong])


def test_too_many_requests_at_once(folder: Path) -> None:
    guard = build_app(Settings(model=folder / "pets.efcil", limits=Limits(requests=1)))
    assert TestClient(guard, HOST).get("/classes").status_code == 200
    guard.requests = 1
    refusal(TestClient(guard, HOST).get("/classes"), 429, "at once")


def test_who_is_refused_takes_nobodys_place(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal takes a moment, in which the rest of the request is thrown away."""
    seen = []

    async def linger(passing: Passing) -> None:
        seen.append(passing.guard.requests)

    monkeypatch.setattr(Passing, "linger", linger)
    refusal(client.post("/predict", files=photos("cat", 1), headers={"Origin": "null"}), 403, "other sites")
    assert seen == [0]


def test_formats_of_photos(client: TestClient) -> None:
    """Those of cameras and browsers are read, in whatever a file is called."""
    pixels = np.asarray(Image.open(io.BytesIO(photo("cat", 3))))
    for format in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
        answer = client.post("/predict", files={"images": ("upload", as_file(pixels, format))})
        assert answer.status_code == 200, (format, answer.text)
