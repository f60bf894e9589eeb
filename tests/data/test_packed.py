"""Images of a set in one file: the same pixels, made once, whole or not at all, and never older than the images."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import cli_environment
from efcil import data
from efcil.config import DataConfig, to_dict
from efcil.data import packed as packing
from efcil.data.dataset import DataSet
from efcil.engine.fingerprint import fingerprint
from efcil.errors import Notice, UserError

SIDE = 12


def photos(root: Path, parts: tuple[str, ...] = ("train", "test")) -> Path:
    """JPEGs of many shapes, also grey ones and one with an orientation."""
    rng = np.random.default_rng(0)
    for part in parts:
        for name in ("cat", "dog"):
            folder = root / part / name
            folder.mkdir(parents=True)
            for index, (width, height) in enumerate([(20, 15), (12, 12), (9, 40), (31, 17), (16, 16)]):
                image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
                image = image.convert("L") if index == 1 else image
                exif = Image.Exif()
                exif[0x0112] = 6 if index == 3 else 1
                image.save(folder / f"{index}.jpg", exif=exif)
    return root


def loaded(root: Path, folder: Path | None, **changes: Any) -> DataSet:
    config = DataConfig("folder", packed=None if folder is None else str(folder), **changes)
    return data.load(config, root, SIDE, cache_mb=0, workers=1)


def pixels(found: DataSet) -> list[torch.Tensor]:
    return [part.batch(torch.arange(len(part))) for part in (found.train, found.test)]


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_the_same_pixels_and_the_images_are_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, folder = photos(tmp_path / "set"), tmp_path / "cache"
    expected = pixels(loaded(root, None))
    first = pixels(loaded(root, folder))
    monkeypatch.setattr("efcil.data.images.decode", lambda *_: pytest.fail("an image was opened"))
    again = pixels(loaded(root, folder))
    for ours in (first, again):
        assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    names = [path.name for path in files_in(folder)]
    assert len(names) == 2 and names[0].startswith("test-12px-") and names[1].startswith("train-12px-")


def test_parts_of_one_folder_share_one_file_and_chosen_rows_fit(tmp_path: Path) -> None:
    root, folder = photos(tmp_path / "set", (".",)), tmp_path / "cache"
    for changes in ({}, {"images_per_class": 2}, {"held_out": 1}):
        expected, ours = (pixels(loaded(root, place, **changes)) for place in (None, folder))
        assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    assert len(files_in(folder)) == 1


def test_a_run_can_be_resumed_with_packed_images(tmp_path: Path) -> None:
    """They are the same images: same fingerprint, and the setting is in no digest."""
    root = photos(tmp_path / "set")
    plain, packed = (loaded(root, place).train for place in (None, tmp_path / "cache"))
    assert fingerprint("", {}, plain) == fingerprint("", {}, packed)
    assert "packed" in to_dict(DataConfig())


@pytest.mark.parametrize("change", ["new content", "one more", "another side"])
def test_what_has_changed_is_packed_anew(tmp_path: Path, change: str) -> None:
    root, folder = photos(tmp_path / "set"), tmp_path / "cache"
    loaded(root, folder)
    before = files_in(folder)
    image = root / "train" / "cat" / "0.jpg"
    side = SIDE
    if change == "new content":
        Image.new("RGB", (20, 15), "red").save(image)
        os.utime(image, ns=(1, 1))
    elif change == "one more":
        shutil.copy(image, image.with_name("9.jpg"))
    else:
        side = 10
    config = DataConfig("folder", packed=str(folder))
    found = data.load(config, root, side, cache_mb=0, workers=0)
    expected = data.load(DataConfig("folder"), root, side, cache_mb=0, workers=0)
    assert all(torch.equal(a, b) for a, b in zip(pixels(found), pixels(expected), strict=True))
    assert len(files_in(folder)) > len(before)


def test_a_corrupt_image_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    root, folder = photos(tmp_path / "set"), tmp_path / "cache"
    broken = root / "train" / "dog" / "2.jpg"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(UserError, match=r"dog/2\.jpg' cannot be read as an image"):
        loaded(root, folder)
    assert files_in(folder) == []


BUILD = """
import sys, time
from pathlib import Path
from efcil import data
from efcil.config import DataConfig
from efcil.data import packed
packed.TOGETHER = 1
if sys.argv[3] == "slow":
    wait = packed.shown
    def slow(batches, total, what):
        for number, pixels in enumerate(wait(batches, total, what)):
            if number == 3:
                print("begun", flush=True)
                time.sleep(60)
            yield pixels
    packed.shown = slow
data.load(DataConfig("folder", packed=sys.argv[2]), Path(sys.argv[1]), 12, cache_mb=0, workers=0)
print("done")
"""


def builder(root: Path, folder: Path, speed: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILD, str(root), str(folder), speed]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cli_environment())


@pytest.mark.slow
def test_a_killed_build_leaves_nothing_that_counts(tmp_path: Path) -> None:
    root, folder = photos(tmp_path / "set"), tmp_path / "cache"
    with builder(root, folder, "slow") as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.kill()
    left = files_in(folder)
    assert len(left) == 1 and left[0].name.endswith(packing.PARTIAL)
    expected = pixels(loaded(root, None))
    assert all(torch.equal(a, b) for a, b in zip(pixels(loaded(root, folder)), expected, strict=True))
    assert [path.suffix for path in files_in(folder)] == [".npy", ".npy"]


@pytest.mark.slow
def test_two_processes_at_once_make_one_file(tmp_path: Path) -> None:
    root, folder = photos(tmp_path / "set"), tmp_path / "cache"
    both = [builder(root, folder, "fast") for _ in range(2)]
    assert [process.communicate()[0] for process in both] == ["done\n"] * 2
    assert [path.suffix for path in files_in(folder)] == [".npy", ".npy"]


def test_too_little_room_is_said_before_anything_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "set")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(UserError, match=r"train-12px-.* needs 0\.0 GB, but only 0\.0 GB are free; make room\."):
        loaded(root, tmp_path / "cache")


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    root, folder = photos(tmp_path / "set"), tmp_path / "cache"
    folder.write_text("")
    with pytest.raises(UserError, match=r"^data\.packed must name a folder, and .*cache is a file\.$"):
        loaded(root, folder)


def test_a_set_in_memory_is_not_packed_and_that_is_said(tmp_path: Path) -> None:
    with pytest.warns(Notice, match="no effect: digits is in memory"):
        data.load(DataConfig(name="digits", packed=str(tmp_path / "cache")), None)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("content", [b"", b"no array", None])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, content: bytes | None) -> None:
    root, folder = photos(tmp_path / "set"), tmp_path / "cache"
    loaded(root, folder)
    file = files_in(folder)[1]
    file.write_bytes(file.read_bytes()[:-100] if content is None else content)
    with pytest.raises(UserError, match="remove it, and it is made anew"):
        pixels(loaded(root, folder))
