"""Files are decoded by threads with a bounded queue, in order, and what goes wrong there is told."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import image_trees as trees
import numpy as np
import pytest
import torch
from PIL import Image

from efcil.data import images
from efcil.data.images import Files, ImageSet, Pixels, decode, files, from_pil, image_set, on_disk
from efcil.errors import UserError


class Watched(Files):
    """Counts the batches that were read."""

    def __init__(self, count: int, size: int = 2, fail_at: int | None = None) -> None:
        super().__init__([Path(str(i)) for i in range(count)], size)
        self.started: list[int] = []
        self.fail_at = fail_at
        self.lock = threading.Lock()

    def read(self, rows: torch.Tensor) -> torch.Tensor:
        first = int(rows[0])
        with self.lock:
            self.started.append(first)
        time.sleep(0.001)
        if first == self.fail_at:
            raise UserError(f"'{first}.png' cannot be read.")
        return rows.to(torch.uint8)[:, None, None, None].expand(-1, 3, self.size, self.size)


def test_queue_is_bounded_and_ordered() -> None:
    source = Watched(100)
    iterator = ImageSet(source).batches(torch.arange(100).split(1))
    for taken in range(1, 101):
        assert next(iterator)[0, 0, 0, 0] == taken - 1
        time.sleep(0.002)  # a slow consumer: the threads must not run ahead of it
        assert len(source.started) <= taken - 1 + images.QUEUE
    assert list(iterator) == [] and sorted(source.started) == list(range(100))


def test_queue_of_large_batches_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "QUEUE_BYTES", 3 * images.image_bytes(2))
    source = Watched(20)
    iterator = ImageSet(source).batches(torch.arange(20).split(1))
    next(iterator)
    time.sleep(0.05)
    assert len(source.started) == 3
    iterator.close()  # type: ignore[attr-defined]


def test_error_in_a_worker_surfaces_and_stops_the_rest() -> None:
    source = Watched(100, fail_at=5)
    seen = []
    with pytest.raises(UserError, match=r"5\.png"):
        for batch in ImageSet(source).batches(torch.arange(100).split(1)):
            seen.append(int(batch[0, 0, 0, 0]))
    assert seen == [0, 1, 2, 3, 4]
    assert len(source.started) <= 5 + images.QUEUE
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_abandoned_iteration_ends_its_threads() -> None:
    source = Watched(100)
    iterator = ImageSet(source).batches(torch.arange(100).split(1))
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert len(source.started) <= images.QUEUE
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_large_sets_stay_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [trees.picture(tmp_path / f"{i}.png", value=i) for i in range(9)]
    small = files(paths, 8)
    assert isinstance(small.source, Pixels)
    monkeypatch.setattr(images, "MEMORY_LIMIT", 9 * images.image_bytes(8) - 1)
    large = files(paths, 8)
    assert isinstance(large.source, Files)
    rows = torch.tensor([8, 0, 3])
    assert torch.equal(large.batch(rows), small.batch(rows))
    assert torch.equal(large.subset(rows).in_memory().batch(torch.tensor([0])), small.batch(rows[:1]))
    (tmp_path / "3.png").write_bytes(b"damaged later")
    with pytest.raises(UserError, match=r"3\.png"):
        list(large.batches([rows]))


def test_empty_set_has_no_batches() -> None:
    assert list(on_disk([], 8).batches([])) == []


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "YCbCr"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    grey = Image.fromarray(np.full((10, 12), 255, np.uint8))
    image = Image.fromarray(np.full((10, 12), 0xFFFF, np.uint16)) if mode == "I;16" else grey.convert(mode)
    path = tmp_path / ("x.jpg" if mode in ("CMYK", "YCbCr") else "x.png")
    image.save(path)
    pixels = decode(path, 8)
    assert pixels.shape == (3, 8, 8) and pixels.dtype == torch.uint8
    assert (pixels > 250).all()


def test_sixteen_bits_are_scaled() -> None:
    image = Image.fromarray(np.full((8, 8), 0x8000, np.uint16))
    assert (from_pil(image, 8) == 0x80).all()


def test_transparent_palette(tmp_path: Path) -> None:
    image = Image.fromarray(np.zeros((8, 8), np.uint8)).convert("P")
    image.save(tmp_path / "x.png", transparency=bytes([0, 128]))
    assert decode(tmp_path / "x.png", 8).shape == (3, 8, 8)


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff\xe0 no jpeg"])
def test_unreadable_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.jpg").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.jpg.*replace or remove"):
        decode(tmp_path / "x.jpg", 8)
    with pytest.raises(UserError, match="no image file"):
        decode(tmp_path / "y.jpg", 8)


def test_huge_image_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = trees.picture(tmp_path / "x.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(UserError, match=r"x\.png"):
        decode(path, 8)


def test_shorter_side_is_resized_and_the_rest_cut(tmp_path: Path) -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 200
    Image.fromarray(pixels).save(tmp_path / "x.png")
    assert (decode(tmp_path / "x.png", 10) == 200).all()


def test_bicubic_resizing_is_pillows_for_files_and_for_arrays(tmp_path: Path) -> None:
    """Files and arrays agree up to the rounding of two libraries; bilinear is something else."""
    image = Image.fromarray(np.random.default_rng(3).integers(0, 256, (60, 90, 3), dtype=np.uint8))
    image.save(tmp_path / "noise.png")
    expected = np.asarray(image.resize((36, 24), Image.Resampling.BICUBIC).crop((6, 0, 30, 24))).astype(int)
    read = image_set([tmp_path / "noise.png"], 24, "bicubic").batch(torch.arange(1))[0]
    array = image_set(np.asarray(image)[None], 24, "bicubic").batch(torch.arange(1))[0]
    assert np.abs(read.permute(1, 2, 0).numpy() - expected).max() <= 1
    assert np.abs(array.permute(1, 2, 0).numpy() - expected).max() <= 2
    assert (image_set([image], 24).batch(torch.arange(1))[0].int() - read).abs().max() > 2
