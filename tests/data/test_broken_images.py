"""Whatever is wrong with the bytes of an image, the answer is a picture or one sentence that names it."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from efcil.data.images import decode, extensions, image_set
from efcil.data.zips import zipped_folders
from efcil.errors import UserError

NOISE = np.random.default_rng(0).integers(0, 256, (24, 20, 3), dtype=np.uint8)
PICTURE = Image.fromarray(NOISE)


def metadata() -> Image.Exif:
    """What a camera writes, with the picture lying on its side."""
    exif = Image.Exif()
    exif[274], exif[271], exif[282] = 6, "Maker, a long name", 72.0
    return exif


def encoded(image_format: str, image: Image.Image = PICTURE, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


SAMPLES: dict[str, Callable[[], bytes]] = {
    "photo.jpg": lambda: encoded("JPEG", exif=metadata().tobytes(), progressive=True),
    "two.jpg": lambda: encoded("MPO", save_all=True, append_images=[PICTURE], exif=metadata().tobytes()),
    "photo.png": lambda: encoded("PNG", exif=metadata().tobytes()),
    "palette.png": lambda: encoded("PNG", PICTURE.convert("P"), transparency=3),
    "plain.tif": lambda: encoded("TIFF", exif=metadata()),
    "packed.tif": lambda: encoded("TIFF", compression="tiff_lzw", exif=metadata()),
    "fax.tif": lambda: encoded("TIFF", PICTURE.convert("1"), compression="group4"),
    "real.tif": lambda: encoded("TIFF", Image.fromarray(np.linspace(0, 1, 100, dtype=np.float32).reshape(10, 10))),
    "photo.webp": lambda: encoded("WEBP", exif=metadata().tobytes()),
    "moving.gif": lambda: encoded("GIF", save_all=True, append_images=[PICTURE.rotate(90)]),
    "old.bmp": lambda: encoded("BMP"),
    "words.pgm": lambda: b"P2\n# grey\n4 4 255\n" + b" ".join(b"%d" % grey for grey in range(16)),
    "photo.avif": lambda: encoded("AVIF", exif=metadata().tobytes()),
    "photo.heic": lambda: heic(),
}


def heic() -> bytes:
    from pillow_heif import register_heif_opener

    register_heif_opener()
    return encoded("HEIF")


def broken(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut off, with flipped bits near its start, with other bytes anywhere, or with a piece taken out."""
    damaged = bytearray(content)
    match rng.integers(4):
        case 0:
            return bytes(damaged[: rng.integers(len(damaged))])
        case 1:
            for _ in range(rng.integers(1, 6)):
                damaged[rng.integers(min(len(damaged), 400))] ^= 1 << rng.integers(8)
        case 2:
            for _ in range(rng.integers(1, 20)):
                damaged[rng.integers(len(damaged))] = rng.integers(256)
        case _:
            start = rng.integers(len(damaged))
            damaged[start : start + rng.integers(40)] = rng.bytes(rng.integers(8))
    return bytes(damaged)


@pytest.mark.parametrize("name", SAMPLES)
def test_broken_bytes_are_a_picture_or_one_sentence(name: str) -> None:
    if Path(name).suffix not in extensions():
        pytest.skip("this format is not installed")
    content, rng = SAMPLES[name](), np.random.default_rng(0)
    assert decode(name, 16, content=content).shape == (3, 16, 16)
    refusals = 0
    for _ in range(150):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's own, of metadata that it can do without
            try:
                pixels = decode(name, 16, content=broken(content, rng))
            except UserError as error:
                sentence = str(error)
                assert sentence.startswith(f"'{name}' ") and "\n" not in sentence and " at 0x" not in sentence
                assert len(sentence) < 300
                refusals += 1
            else:
                assert pixels.dtype == torch.uint8 and pixels.shape == (3, 16, 16)
    assert refusals > 5


def test_metadata_of_the_wrong_kind_is_told() -> None:
    """The name of the camera as a fraction, which Pillow cannot write again when it turns the picture."""
    exif = metadata().tobytes().replace(b"\x01\x0f\x00\x02\x00\x00\x00\x13", b"\x01\x0f\x00\x05\x00\x00\x00\x01")
    with pytest.raises(UserError, match=r"^'a.jpg' cannot be read as an image \(.+\); replace or remove it\.$"):
        decode("a.jpg", 8, content=encoded("JPEG", exif=exif))


@pytest.mark.skipif(".avif" not in extensions(), reason="this Pillow has no AVIF")
def test_a_broken_avif_is_told() -> None:
    content = encoded("AVIF", Image.new("RGB", (8, 8)))
    start = content.index(b"mdat") + 4  # what is compressed
    with pytest.raises(UserError, match=r"'a.avif' cannot be read as an image \(Failed to decode"):
        decode("a.avif", 8, content=content[:start] + b"\xff" * (len(content) - start))


def test_a_picture_opened_from_a_broken_file_is_told(tmp_path: Path) -> None:
    """Pillow reads pixels only when they are asked for."""
    path = tmp_path / "cut.png"
    path.write_bytes(encoded("PNG")[:300])
    with Image.open(path) as image, pytest.raises(UserError, match=r"cut.png' that was given cannot be read"):
        image_set([image])
    with Image.open(path) as image, pytest.raises(UserError, match=r"cut.png' that was given cannot be read"):
        image_set(iter([image]))


def test_no_memory_for_a_picture_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    content = encoded("PNG")
    monkeypatch.setattr(Image.Image, "convert", full)
    with pytest.raises(UserError, match=r"'a.png' is an image too large for the memory"):
        decode("a.png", 8, content=content)


def test_a_broken_zip_is_pictures_or_one_sentence(tmp_path: Path) -> None:
    whole, rng = tmp_path / "whole.zip", np.random.default_rng(1)
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("cat/1.png", "dog/2.png"):
            archive.writestr(name, encoded("PNG"))
    path, content, refusals = tmp_path / "broken.zip", whole.read_bytes(), 0
    for _ in range(400):
        path.write_bytes(
            broken(content[-250:], rng) if rng.integers(2) else content[:-250] + broken(content[-250:], rng)
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                images, _names = zipped_folders(path, 8, "bilinear")
                images.batch(torch.arange(len(images)))
        except UserError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            refusals += 1
    assert refusals > 100
