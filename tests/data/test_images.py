"""Files are decoded by threads with a bounded queue, in order, and what goes wrong there is told."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import image_trees as trees
import numpy as np
import pytest
import torch
from PIL import Image

from efcil.data import images, prefetch
from efcil.data.images import HEIF, Files, ImageSet, Pixels, decode, extensions, files, from_pil, image_set, on_disk
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
        assert len(source.started) <= taken - 1 + prefetch.QUEUE
    assert list(iterator) == [] and sorted(source.started) == list(range(100))


@pytest.mark.parametrize("grey", [0, 90, 255])
def test_arrays_with_transparency_are_laid_on_white_as_files_are(grey: int) -> None:
    """A black drawing on nothing would be all black without its fourth channel."""
    array = np.full((1, 16, 16, 4), grey, dtype=np.uint8)
    array[..., 3] = np.arange(256).reshape(16, 16)
    expected = from_pil(Image.fromarray(array[0]), 16).int()
    for given in (array, torch.from_numpy(array).permute(0, 3, 1, 2)):
        assert (image_set(given).batch(torch.tensor([0]))[0].int() - expected).abs().max() <= 1
    array[..., 3] = 255
    assert (image_set(array).batch(torch.tensor([0])) == grey).all()


@pytest.mark.parametrize("shape", [(4, 20_000), (20_000, 4)])
def test_a_strip_in_an_array_takes_little_memory(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The square in the middle is all that is needed of it."""
    sizes: list[int] = []
    interpolate = images.F.interpolate

    def noting(part: torch.Tensor, size: tuple[int, int], **options: object) -> torch.Tensor:
        sizes.append(size[0] * size[1])
        return interpolate(part, size, **options)

    monkeypatch.setattr(images.F, "interpolate", noting)
    array = np.zeros((1, *shape, 3), dtype=np.uint8)
    array[:, shape[0] // 2 - 2 : shape[0] // 2 + 2, shape[1] // 2 - 2 : shape[1] // 2 + 2] = 200
    assert (image_set(array, 32).batch(torch.tensor([0]))[:, :, 8:24, 8:24] == 200).all()
    assert max(sizes) <= images.WIDEST * 32 * 32


def test_queue_of_large_batches_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "QUEUE_BYTES", 3 * images.image_bytes(2))
    source = Watched(20)
    iterator = ImageSet(source).batches(torch.arange(20).split(1))
    next(iterator)
    until = time.monotonic() + 600
    while len(source.started) < 3:
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(0.05)  # for more, if there were any
    assert len(source.started) == 3
    iterator.close()  # type: ignore[attr-defined]


def test_error_in_a_worker_surfaces_and_stops_the_rest() -> None:
    source = Watched(100, fail_at=5)
    seen = []
    with pytest.raises(UserError, match=r"5\.png"):
        for batch in ImageSet(source).batches(torch.arange(100).split(1)):
            seen.append(int(batch[0, 0, 0, 0]))
    assert seen == [0, 1, 2, 3, 4]
    assert len(source.started) <= 5 + prefetch.QUEUE
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_abandoned_iteration_ends_its_threads() -> None:
    source = Watched(100)
    iterator = ImageSet(source).batches(torch.arange(100).split(1))
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert len(source.started) <= prefetch.QUEUE
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_large_sets_stay_on_disk(tmp_path: Path) -> None:
    side = 209  # eight such images are just below a megabyte, nine are more
    paths = [trees.picture(tmp_path / f"{i}.png", value=i) for i in range(9)]
    small, nothing = files(paths[:8], side, cache_mb=1), files(paths, side, cache_mb=0)
    large = files(paths, side, cache_mb=1)
    assert isinstance(small.source, Pixels) and isinstance(nothing.source, Files) and isinstance(large.source, Files)
    rows = torch.tensor([7, 0, 3])
    assert torch.equal(large.batch(rows), small.batch(rows))
    assert torch.equal(large.subset(rows).in_memory(1).batch(torch.tensor([0])), small.batch(rows[:1]))
    (tmp_path / "3.png").write_bytes(b"damaged later")
    with pytest.raises(UserError, match=r"3\.png"):
        list(large.batches([rows]))
    assert len(small.batch(rows)) == 3


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_as_many_threads_decode_as_were_asked_for(tmp_path: Path, workers: int) -> None:
    readers: set[str] = set()

    class Noting(Watched):
        def read(self, rows: torch.Tensor) -> torch.Tensor:
            readers.add(threading.current_thread().name)
            return super().read(rows)

    parts = list(ImageSet(Noting(40)).batches(torch.arange(40).split(1), workers))
    assert torch.cat(parts)[:, 0, 0, 0].tolist() == list(range(40))
    assert len(readers) <= max(1, workers)
    assert (threading.current_thread().name in readers) == (workers == 0)


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


GRADIENT = np.linspace(0, 1, 16 * 16).reshape(16, 16)
GREY = np.rint(GRADIENT * 255)


def written(path: Path, pixels: np.ndarray) -> Path:
    """A file with these pixels; a PGM of 16 bits by hand, as Pillow writes none from an array of them."""
    if path.suffix == ".pgm":
        high, wide = pixels.shape
        path.write_bytes(f"P5 {wide} {high} 65535\n".encode() + pixels.astype(">u2").tobytes())
    else:
        Image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        ("16 bits.pgm", np.rint(GRADIENT * 0xFFFF)),
        ("16 bits.png", np.rint(GRADIENT * 0xFFFF).astype(np.uint16)),
        ("16 bits.tif", np.rint(GRADIENT * 0xFFFF).astype(np.uint16)),
        ("32 bits that hold 16.tif", np.rint(GRADIENT * 0xFFFF).astype(np.int32)),
        ("32 bits that hold 8.tif", GREY.astype(np.int32)),
        ("real numbers to 1.tif", GRADIENT.astype(np.float32)),
        ("real numbers to 255.tif", GREY.astype(np.float32)),
        ("real numbers to 65535.tif", (GRADIENT * 0xFFFF).astype(np.float32)),
    ],
)
def test_more_than_eight_bits_are_scaled_by_their_range(tmp_path: Path, name: str, pixels: np.ndarray) -> None:
    seen = decode(written(tmp_path / name, pixels), 16)
    assert np.abs(seen.numpy() - GREY).max() <= 1


def test_a_dark_file_of_sixteen_bits_stays_dark(tmp_path: Path) -> None:
    """Its format says where white is, so the greatest pixel is not asked."""
    for name, kind in (("x.pgm", np.float64), ("x.png", np.uint16), ("x.tif", np.uint16)):
        assert (decode(written(tmp_path / name, np.full((8, 8), 250, kind)), 8) == 1).all()


@pytest.mark.parametrize(
    "pixels",
    [
        np.full((8, 8), -1, np.int32),
        np.full((8, 8), 70_000, np.int32),
        np.full((8, 8), -0.5, np.float32),
        np.full((8, 8), np.nan, np.float32),
        np.full((8, 8), 1e9, np.float32),
    ],
)
def test_pixels_without_a_known_white_are_a_sentence(tmp_path: Path, pixels: np.ndarray) -> None:
    path = written(tmp_path / "x.tif", pixels)
    with pytest.raises(UserError, match=r"x\.tif.*pixels between .* instead of 0 and 65535.*replace or remove it\."):
        decode(path, 8)
    with pytest.raises(UserError, match="scale them to 8 or 16 bits"):
        image_set([Image.fromarray(pixels)])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_black_on_transparency_is_black_on_white(tmp_path: Path, mode: str) -> None:
    alpha = np.zeros((8, 8), np.uint8)
    alpha[2:6, 2:6] = 255
    black = np.zeros_like(alpha)
    if mode == "P":
        image = Image.fromarray((alpha > 0).astype(np.uint8)).convert("P")  # both entries of the palette are black
        image.putpalette([0, 0, 0] * 256)
        image.save(tmp_path / "x.png", transparency=bytes([0, 255]))
    elif mode in ("RGB", "L"):  # one colour is said to be transparent
        image = Image.fromarray(np.where(alpha, 0, 9).astype(np.uint8)).convert(mode)
        image.save(tmp_path / "x.png", transparency=(9, 9, 9) if mode == "RGB" else 9)
    else:
        image = Image.merge("LA", [Image.fromarray(black), Image.fromarray(alpha)]).convert(mode)
        image.save(tmp_path / "x.png")
        assert (from_pil(image, 8).numpy() == 255 - alpha).all()
    assert (decode(tmp_path / "x.png", 8).numpy() == 255 - alpha).all()


def test_half_transparent_is_mixed_with_white() -> None:
    image = Image.new("RGBA", (8, 8), (0, 100, 200, 128))
    assert from_pil(image, 8)[:, 0, 0].tolist() == [127, 177, 227]


@pytest.mark.parametrize("shape", [(7, 30), (30, 7), (20, 16), (16, 21), (64, 64), (100, 333)])
@pytest.mark.parametrize("size", [8, 16, 64])
def test_only_the_middle_is_resized_to_what_the_whole_would_give(shape: tuple[int, int], size: int) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8))
    wide, high = (max(size, round(side * size / min(image.size))) for side in image.size)
    left, top = (wide - size) // 2, (high - size) // 2
    whole = image.resize((wide, high), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))
    assert np.abs(from_pil(image, size).permute(1, 2, 0).numpy().astype(int) - np.asarray(whole)).max() <= 1


@pytest.mark.parametrize("shape", [(20_000, 4), (4, 20_000)])
def test_a_long_strip_takes_little_memory(tmp_path: Path, shape: tuple[int, int]) -> None:
    Image.new("L", shape).save(tmp_path / "x.png")
    code = f"""
import resource
from efcil.data.images import decode
decode({str(tmp_path / "x.png")!r}, 8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
decode({str(tmp_path / "x.png")!r}, 256)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 50_000  # kilobytes; resizing all of it took 1.3 GB


@pytest.mark.parametrize("suffix", [".jfif", ".avif", ".heic", ".heif", ".HEIC"])
def test_photos_of_phones_and_browsers(tmp_path: Path, suffix: str) -> None:
    """In a process of its own, so that nothing has taught Pillow the format before."""
    if suffix == ".avif" and suffix not in extensions():
        pytest.skip("this Pillow has no AVIF")
    if suffix.lower() in HEIF:
        pytest.importorskip("pillow_heif").register_heif_opener()
    image = Image.new("RGB", (40, 32), (200, 100, 50))
    image.save(tmp_path / f"x{suffix}", format={".jfif": "JPEG", ".avif": "AVIF"}.get(suffix, "HEIF"))
    code = f"""
from efcil.data.images import decode, extensions
assert {suffix.lower()!r} in extensions()
print(decode({str(tmp_path / f"x{suffix}")!r}, 8)[:, 4, 4].tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert np.abs(np.array(json.loads(done.stdout)) - (200, 100, 50)).max() < 8


def test_heic_without_its_plugin_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "extensions", lambda: frozenset(images.EXTENSIONS))
    (tmp_path / "x.heic").write_bytes(b"a photo")
    with pytest.raises(UserError, match=r"x\.heic.*pip install 'efcil\[heif\]'"):
        decode(tmp_path / "x.heic", 8)


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
