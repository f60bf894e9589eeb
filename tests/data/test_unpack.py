"""Hostile and damaged archives leave nothing behind."""

from __future__ import annotations

import io
import random
import stat
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from efcil.data.fetch.unpack import unpack
from efcil.errors import UserError

LIMIT = 50_000
Make = Callable[..., Path]


def tar(path: Path, *members: tuple[tarfile.TarInfo | str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for member, content in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return path


def zipped(path: Path, *members: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for member, content in members:
            packed.writestr(member, content, zipfile.ZIP_DEFLATED)
    return path


def special(name: str, kind: bytes, target: str = "/etc/passwd") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def refused(archive: Path, words: str) -> None:
    """Unpacking fails with these words, and nothing is left but the archive."""
    before = {path: path.read_bytes() for path in archive.parent.parent.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=words) as caught:
        unpack(archive, archive.parent / "set", LIMIT, 5)
    assert str(archive) in str(caught.value)
    assert {path: path.read_bytes() for path in archive.parent.parent.rglob("*") if path.is_file()} == before
    assert [path for path in archive.parent.iterdir() if path.is_dir()] == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.mark.parametrize("make", [tar, zipped])
def test_good_archives(root: Path, make: Make) -> None:
    archive = make(root / "a", ("set/x.txt", b"x"), ("set/deep/er/y.txt", b"y" * 3000))
    unpack(archive, root / "set", LIMIT, 5)
    assert (root / "set" / "x.txt").read_bytes() == b"x"
    assert (root / "set" / "deep" / "er" / "y.txt").read_bytes() == b"y" * 3000
    assert sorted(path.name for path in root.iterdir()) == ["a", "set"]
    with pytest.raises(UserError, match="cannot be unpacked"):  # what is there is not replaced
        unpack(archive, root / "set", LIMIT, 5)
    assert sorted(path.name for path in root.iterdir()) == ["a", "set"]


@pytest.mark.parametrize("make", [tar, zipped])
@pytest.mark.parametrize(
    "name",
    ["../escape.txt", "set/../../escape.txt", "/tmp/escape.txt", "other/x.txt", "set/..\\..\\escape.txt", "C:/x"],
)
def test_path_escapes(root: Path, make: Make, name: str) -> None:
    refused(make(root / "a", ("set/x.txt", b"x"), (name, b"bad")), "outside of set")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar(root: Path, kind: bytes) -> None:
    refused(tar(root / "a", ("set/x.txt", b"x"), (special("set/link", kind), b"")), "neither a file nor a folder")


def test_link_in_zip(root: Path) -> None:
    link = zipfile.ZipInfo("set/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    refused(zipped(root / "a", ("set/x.txt", b"x"), (link, b"/etc/passwd")), "neither a file nor a folder")


@pytest.mark.parametrize("make", [tar, zipped])
def test_bombs(root: Path, make: Make) -> None:
    refused(make(root / "a", ("set/zeros", bytes(LIMIT + 1))), "far more")
    many = [(f"set/{i}", b"") for i in range(6)]
    refused(make(root / "a", *many), "far more")
    refused(make(root / "a", *[(f"set/{i}", bytes(LIMIT // 4)) for i in range(5)]), "far more")


def test_bomb_in_a_long_name(root: Path) -> None:
    refused(tar(root / "a", ("set/" + "x" * 5 * LIMIT, b"")), "far more")


def test_zip_that_lies_about_a_size(root: Path) -> None:
    archive = zipped(root / "a", ("set/x", bytes(9000)))
    content = archive.read_bytes()
    archive.write_bytes(content.replace((9000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    refused(archive, "damaged")


@pytest.mark.parametrize("make", [tar, zipped])
def test_same_name_twice(root: Path, make: Make) -> None:
    with pytest.warns(UserWarning, match="Duplicate") if make is zipped else nullcontext():
        archive = make(root / "a", ("set/x", b"1"), ("set/x", b"2"))
    refused(archive, "cannot be unpacked")


@pytest.mark.parametrize("make", [tar, zipped])
def test_truncated_and_other_files(root: Path, make: Make) -> None:
    noise = random.Random(0).randbytes(5000)
    archive = make(root / "a", ("set/x", noise), ("set/y", noise))
    archive.write_bytes(archive.read_bytes()[:-3000])
    refused(archive, "damaged|cannot be unpacked|ends in the middle")
    archive.write_bytes(b"<html>not an archive</html>")
    refused(archive, "damaged|cannot be unpacked")
    refused(make(root / "a", ("set", b"a file")), "does not hold the folder")
