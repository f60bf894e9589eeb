"""Labelled images, in memory or on disk, always square RGB uint8; one way in, one way to walk through them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional as F

from efcil.config import CACHE_MB, WORKERS
from efcil.data.prefetch import prefetched
from efcil.errors import TooLarge, UserError, WrongType

WIDEST = 4  # sides of an array that are more times as long as the other lose their ends before they are resized
FILE_SIZE = 64  # side that files and PIL images get when nothing else is asked for
Interpolation = Literal["bilinear", "bicubic"]
EXTENSIONS = {".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
HEIF = {".heic", ".heif"}
REMEDIES = {  # what reads the endings that Pillow does not always read
    ".avif": "to read .avif, install a Pillow that has AVIF, such as the wheels of 11.3 or newer",
    **dict.fromkeys(sorted(HEIF), "to read .heic and .heif, run: pip install 'efcil[heif]'"),
}


@dataclass(frozen=True)
class Bounds:
    """What files may be like; those of strangers get narrower ones than those of the person at the keyboard."""

    pixels: int | None = None  # of one image, before any of them is decoded
    formats: tuple[str, ...] | None = None  # as Pillow calls them; None: all that it reads
    members: int = 50_000  # of an archive
    expanded: int = 8 << 30  # bytes of all members together
    member: int = 256 << 20  # bytes of one
    compressions: tuple[int, ...] | None = None  # as zipfile numbers them; None: all that it reads


ANY = Bounds()


class ImageSet:
    """N images that can be read in batches. Subsets share the pixels or paths and never copy them."""

    def __init__(self, source: Pixels | Files, rows: Tensor | None = None) -> None:
        self.source = source
        self.rows = torch.arange(len(source)) if rows is None else rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """Side of the square images in pixels."""
        return self.source.size

    def subset(self, rows: Tensor) -> ImageSet:
        return ImageSet(self.source, self.rows[rows])

    def joined(self, other: ImageSet) -> ImageSet:
        """These images followed by the others."""
        if self.source is other.source:
            return ImageSet(self.source, torch.cat([self.rows, other.rows]))
        return ImageSet(Pixels(torch.cat([part.source.read(part.rows) for part in (self, other)])))

    def batch(self, rows: Tensor) -> Tensor:
        """The images of these rows, uint8 (B, 3, H, W)."""
        return self.source.read(self.rows[rows])

    def batches(self, batches: Sequence[Tensor], workers: int = WORKERS) -> Iterator[Tensor]:
        """The images of each group of rows in turn; files are decoded ahead by a few threads."""
        if isinstance(self.source, Pixels):
            return map(self.batch, batches)
        largest = max((len(rows) for rows in batches), default=0) * image_bytes(self.size)
        return prefetched([partial(self.batch, rows) for rows in batches], workers, largest)

    def in_memory(self, cache_mb: int = CACHE_MB, workers: int = WORKERS) -> ImageSet:
        """The same images, decoded once if they are small enough together; otherwise still on disk."""
        if isinstance(self.source, Pixels) or len(self) * image_bytes(self.size) > cache_mb << 20:
            return self
        pixels = torch.empty(len(self), 3, self.size, self.size, dtype=torch.uint8)
        done = 0
        for part in self.batches(torch.arange(len(self)).split(64), workers):
            pixels[done : done + len(part)] = part
            done += len(part)
        return ImageSet(Pixels(pixels))


class Pixels:
    """Images in memory."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels  # uint8 (N, 3, S, S)
        self.size = pixels.shape[-1]

    def __len__(self) -> int:
        return len(self.pixels)

    def read(self, rows: Tensor) -> Tensor:
        return self.pixels[rows]


class Files:
    """Images on disk, decoded when they are read."""

    def __init__(
        self, paths: Sequence[str | os.PathLike[str]], size: int, interpolation: Interpolation = "bilinear"
    ) -> None:
        self.paths = paths
        self.size = size
        self.interpolation = interpolation

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, rows: Tensor) -> Tensor:
        pixels = torch.empty(len(rows), 3, self.size, self.size, dtype=torch.uint8)
        for place, row in enumerate(rows.tolist()):
            pixels[place] = decode(self.paths[row], self.size, self.interpolation)
        return pixels


@cache
def extensions() -> frozenset[str]:
    """The endings of image files, in small letters, that can be read with what is installed."""
    heif = HEIF if find_spec("pillow_heif") else set()
    try:
        from PIL import AvifImagePlugin
    except ImportError:  # before Pillow 11.3
        return frozenset(EXTENSIONS | heif)
    return frozenset(EXTENSIONS | heif | ({".avif"} if AvifImagePlugin.SUPPORTED else set()))


@cache
def _open_heif() -> None:
    """Teach Pillow the photos of phones; only once one is met, as it takes a moment."""
    from pillow_heif import register_heif_opener

    register_heif_opener()


def decode(
    path: str | os.PathLike[str],
    size: int,
    interpolation: Interpolation = "bilinear",
    content: bytes | None = None,
    bounds: Bounds = ANY,
) -> Tensor:
    """One image file as uint8 (3, size, size): the shorter side is resized, the rest cropped from the centre.

    ``content`` are the bytes of a file that is not on disk under this name.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix in REMEDIES and suffix not in extensions():
        raise UserError(f"{str(path)!r} cannot be read as an image here; {REMEDIES[suffix]}.")
    if suffix in HEIF:
        _open_heif()
    source = path if content is None else io.BytesIO(content)
    with _as_image(repr(str(path))), Image.open(source, formats=_known(bounds.formats)) as image:
        if bounds.pixels is not None and image.width * image.height > bounds.pixels:
            size_told = f"{image.width:,} × {image.height:,} pixels"
            raise TooLarge(f"{str(path)!r} has {size_told}, more than {bounds.pixels:,} in all; make it smaller.")
        image.draft("RGB", (size, size))  # lets JPEG decode at a fraction of its size
        upright = ImageOps.exif_transpose(image)  # as the camera was held
        upright.format = image.format
        return from_pil(upright, size, interpolation)


def _known(formats: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Those of the formats that Pillow has here; it fails on the name of one that it has not."""
    if formats is None:
        return None
    Image.init()
    return tuple(name for name in formats if name in Image.OPEN)


@contextmanager
def _as_image(name: str) -> Iterator[None]:
    """Whatever Pillow and its decoders say of a broken image becomes one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"There is no image file {name}.") from None
    except MemoryError:
        raise UserError(f"{name} is an image too large for the memory of this machine; make it smaller.") from None
    except TooLarge:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise TooLarge(f"{name} has more pixels than any photo, which is not believed; make it smaller.") from None
    except UnidentifiedImageError:
        raise WrongType(f"{name} cannot be read as an image (no known format); replace or remove it.") from None
    except Exception as error:  # broken bytes end in AttributeError, EOFError, RuntimeError and more, by format
        said = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise UserError(f"{name} cannot be read as an image ({said}); replace or remove it.") from None


def from_pil(image: Image.Image, size: int, interpolation: Interpolation = "bilinear") -> Tensor:
    """A PIL image as uint8 (3, size, size); greyscale becomes grey RGB, what is transparent becomes white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = _eight_bits(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    rgb = image.convert("RGB")
    if rgb.size != (size, size):
        # Only the square in the middle is resized: a strip of 20000 × 4 pixels would become gigabytes otherwise.
        scale = size / min(rgb.size)
        whole = [max(size, round(side * scale)) for side in rgb.size]
        (left, right), (top, bottom) = (
            ((full - size) // 2 * side / full, ((full - size) // 2 + size) * side / full)
            for side, full in zip(rgb.size, whole, strict=True)
        )
        rgb = rgb.resize((size, size), Image.Resampling[interpolation.upper()], box=(left, top, right, bottom))
    return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def _loaded(image: Image.Image, size: int, interpolation: Interpolation) -> Tensor:
    """A PIL image that was given, of which Pillow may not have read the pixels yet."""
    with _as_image(f"the image {getattr(image, 'filename', '') or ''!r} that was given"):
        return from_pil(image, size, interpolation)


def _eight_bits(image: Image.Image) -> Image.Image:
    """An image of more than 8 bits, scaled; Pillow itself would cut off at 255.

    Where the format does not say so, the greatest pixel tells whether white is 1 (real numbers only), 255 or 65535.
    """
    pixels = np.asarray(image)
    low, high = pixels.min(), pixels.max()
    if not (low >= 0 and high <= 0xFFFF):  # also when some are not a number
        raise UserError(f"pixels between {low:g} and {high:g} instead of 0 and 65535; scale them to 8 or 16 bits.")
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PPM", "PNG")) or high > 0xFF:
        white = 0xFFFF
    else:
        white = 1 if image.mode == "F" and high <= 1 else 0xFF
    return Image.fromarray(np.rint(pixels * (255 / white)).astype(np.uint8))


def image_set(
    images: Any,
    size: int | None = None,
    interpolation: Interpolation = "bilinear",
    cache_mb: int = CACHE_MB,
    workers: int = WORKERS,
) -> ImageSet:
    """Images of any accepted kind as an ImageSet with this side (``None``: as they are; files: 64).

    A single colour image (H, W, 3), tensor (3, H, W), PIL image or path is a set of one.
    """
    if isinstance(images, ImageSet):
        return images
    if isinstance(images, np.ndarray) and images.dtype.kind in "OU":  # an array of paths or of images, as tables have
        images = images.tolist()
    if isinstance(images, str | os.PathLike | Image.Image):
        images = [images]
    if isinstance(images, Iterator):
        images = [brought(image, size, interpolation) for image in images]
    if isinstance(images, np.ndarray | Tensor):
        return ImageSet(Pixels(_resized(_pixels(_stacked(images)), size, interpolation)))
    if isinstance(images, Sequence) and not isinstance(images, str | bytes) and len(images):
        if all(isinstance(image, str | os.PathLike) for image in images):
            return files([Path(image) for image in images], size or FILE_SIZE, interpolation, cache_mb, workers)
        if all(isinstance(image, Image.Image) for image in images):
            side = size or FILE_SIZE
            return ImageSet(Pixels(torch.stack([_loaded(image, side, interpolation) for image in images])))
        if all(isinstance(image, np.ndarray | Tensor) for image in images):
            side = size or min(min(_pixels(image[None]).shape[2:]) for image in images)
            return ImageSet(
                Pixels(torch.cat([_resized(_pixels(image[None]), side, interpolation) for image in images]))
            )
    raise UserError(
        "images must be a uint8 array (N, H, W, 3) or (N, H, W), a tensor (N, C, H, W), a non-empty list of "
        f"file paths, PIL images or arrays, or one of those, not {_describe(images)}."
    )


def brought(image: Any, size: int | None, interpolation: Interpolation) -> Any:
    """A PIL image as pixels of this side, anything else as it is: of photos that come one by one, one is large."""
    return _loaded(image, size or FILE_SIZE, interpolation) if isinstance(image, Image.Image) else image


def files(
    paths: Sequence[str | os.PathLike[str]],
    size: int,
    interpolation: Interpolation = "bilinear",
    cache_mb: int = CACHE_MB,
    workers: int = WORKERS,
) -> ImageSet:
    """Image files; read once into memory when they are small together, otherwise on demand."""
    return on_disk(paths, size, interpolation).in_memory(cache_mb, workers)


def on_disk(paths: Sequence[str | os.PathLike[str]], size: int, interpolation: Interpolation = "bilinear") -> ImageSet:
    """Image files, none of them opened yet."""
    return ImageSet(Files(paths, size, interpolation))


def image_bytes(size: int) -> int:
    """Memory that one decoded image takes."""
    return 3 * size * size


def _stacked(images: np.ndarray[Any, Any] | Tensor) -> np.ndarray[Any, Any] | Tensor:
    """One colour image as a stack of one; three dimensions are else a stack of greyscale images."""
    shape = tuple(images.shape)
    if len(shape) != 3:
        return images
    if isinstance(images, Tensor):
        single, unclear = shape[0] == 3, shape[0] == 4 or shape[2] in (3, 4)
        layouts = "(1, C, H, W) for one colour image or (N, 1, H, W)"
    else:
        single, unclear = shape[2] in (3, 4), shape[2] in (3, 4) and (shape[0] in (1, 3, 4) or shape[1] <= 4)
        layouts = "(1, H, W, C) for one colour image or (N, H, W, 1)"
    if unclear:
        raise UserError(f"images of the shape {shape} can be meant in two ways; give {layouts} for greyscale ones.")
    return images[None] if single else images


def _pixels(images: np.ndarray[Any, Any] | Tensor) -> Tensor:
    """An array or tensor of images as uint8 (N, 3, H, W)."""
    channels_first = isinstance(images, Tensor)
    if isinstance(images, np.ndarray):
        if images.dtype.kind not in "uifb":
            raise UserError(f"pixels must be uint8 from 0 to 255, not {images.dtype}.")
        # A copy: the array may be read-only, and in the byte order of another machine.
        images = torch.from_numpy(np.array(images, dtype=images.dtype.newbyteorder("=")))
    if images.is_meta:
        raise UserError("the images are on the device meta, which holds no pixels; give them on another.")
    pixels = images.detach().cpu()  # may come from a graphics card, or out of a computation with gradients
    shape = tuple(pixels.shape)
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.ndim == 4 and not channels_first:
        pixels = pixels.permute(0, 3, 1, 2)
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3, 4) or 0 in shape:
        layout = "(N, C, H, W)" if channels_first else "(N, H, W, C)"
        raise UserError(f"images must have the shape {layout} with 1, 3 or 4 channels, not {shape}.")
    if pixels.is_floating_point():
        if not torch.isfinite(pixels).all():
            raise UserError("the images hold NaN or infinite pixels; clean them before learning.")
        if pixels.min() < 0 or pixels.max() > 1:
            raise UserError(
                f"images of real numbers must lie in [0, 1], these lie in [{pixels.min():g}, {pixels.max():g}]; "
                "scale them, or pass uint8 pixels from 0 to 255."
            )
        pixels = (pixels * 255).round().to(torch.uint8)
    if pixels.dtype != torch.uint8:
        raise UserError(f"pixels must be uint8 from 0 to 255, not {str(pixels.dtype).removeprefix('torch.')}.")
    if pixels.shape[1] == 4:
        return _on_white(pixels)
    return pixels.expand(-1, 3, -1, -1) if pixels.shape[1] == 1 else pixels


def _on_white(pixels: Tensor) -> Tensor:
    """Images with a fourth channel that says how opaque they are, as uint8 (N, 3, H, W); files are treated alike."""
    colours, opaque = pixels[:, :3], pixels[:, 3:]
    if (opaque == 255).all():
        return colours
    parts = zip(colours.split(256), opaque.split(256), strict=True)  # whole numbers of four bytes are large
    return torch.cat([((c.int() * a + 255 * (255 - a.int()) + 127) // 255).to(torch.uint8) for c, a in parts])


def _resized(pixels: Tensor, size: int | None, interpolation: Interpolation = "bilinear") -> Tensor:
    """Square images of this side, the shorter side resized and the rest cropped from the centre."""
    high, wide = pixels.shape[2:]
    side = size or min(high, wide)
    longest = WIDEST * min(high, wide)
    if max(high, wide) > longest:  # a strip of 20000 × 4 pixels would become gigabytes otherwise
        top, left = (max(0, (length - longest) // 2) for length in (high, wide))
        pixels = pixels[:, :, top : top + longest, left : left + longest]
        high, wide = pixels.shape[2:]
    if min(high, wide) != side:
        scale = side / min(high, wide)
        shape = (max(side, round(high * scale)), max(side, round(wide * scale)))
        parts = [
            F.interpolate(part.float(), shape, mode=interpolation, antialias=True).round().clamp(0, 255).to(torch.uint8)
            for part in pixels.split(1024)
        ]
        pixels = torch.cat(parts)
        high, wide = shape
    top, left = (high - side) // 2, (wide - side) // 2
    return pixels[:, :, top : top + side, left : left + side].contiguous()


def _describe(images: Any) -> str:
    if isinstance(images, Sequence) and not isinstance(images, str):
        kinds = sorted({type(image).__name__ for image in images})
        return f"a list of {', '.join(kinds)}" if kinds else "an empty list"
    return f"{type(images).__name__} {images!r:.40}"
