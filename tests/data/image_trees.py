"""Small generated image sets in every layout that efcil reads."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

WNIDS = ["n00000002", "n00000001", "n00000003"]  # not sorted, as in the real lists
DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def picture(path: Path, value: int = 100, size: tuple[int, int] = (20, 16)) -> Path:
    """A picture of one grey value with a brighter corner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((size[1], size[0], 3), value, np.uint8)
    pixels[:4, :4] = 250
    Image.fromarray(pixels).save(path)
    return path


def class_folders(folder: Path, classes: Sequence[str], count: int = 2, suffix: str = ".png", inside: str = "") -> Path:
    for label, name in enumerate(classes):
        for index in range(count):
            picture(folder / name / inside / f"{name}_{index}{suffix}", value=40 * label + index)
    return folder


def tiny_imagenet(root: Path) -> Path:
    """Two training images and one test image of each class of WNIDS."""
    folder = root / "tiny-imagenet-200"
    class_folders(folder / "train", WNIDS, suffix=".JPEG", inside="images")
    lines = []
    for index, name in enumerate(WNIDS):
        picture(folder / "val" / "images" / f"val_{index}.JPEG")
        lines.append(f"val_{index}.JPEG\t{name}\t0\t32\t44\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    return folder


def imagenet(root: Path, classes: Sequence[str] = WNIDS) -> Path:
    folder = root / "imagenet"
    class_folders(folder / "train", classes, count=3, suffix=".JPEG")
    class_folders(folder / "val", classes, count=1, suffix=".JPEG")
    return folder


def dn4il(root: Path, lists: str = "") -> Path:
    """Two classes in each domain, with two training images and one test image each."""
    folder = root / "dn4il"
    (folder / lists).mkdir(parents=True, exist_ok=True)
    for domain in DOMAINS:
        for part, count in (("train", 2), ("test", 1)):
            lines = []
            for label, name in enumerate(("zebra", "axe")):  # labels, not names, decide the order
                for index in range(count):
                    image = f"{domain}/{name}/{part}_{index}.jpg"
                    picture(folder / image)
                    lines.append(f"{image} {label}\n")
            (folder / lists / f"{domain}_{part}.txt").write_text("".join(lines))
    return folder


def cifar_pixels(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 3072), dtype=np.uint8)


def cifar_binary(root: Path, counts: dict[str, int]) -> Path:
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    (folder / "fine_label_names.txt").write_text("\n".join(f"class{i:02}" for i in range(100)) + "\n\n")
    for part, count in counts.items():
        labels = (np.arange(count) % 100).astype(np.uint8)
        records = np.concatenate([labels[:, None] // 5, labels[:, None], cifar_pixels(count)], axis=1)
        records.tofile(folder / f"{part}.bin")
    return folder


def cifar_python(root: Path, counts: dict[str, int]) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    names = [f"class{i:02}" for i in range(100)]
    (folder / "meta").write_bytes(python2_pickle({"fine_label_names": names, "coarse_label_names": []}))
    for part, count in counts.items():
        content = {
            "filenames": [f"{i}.png" for i in range(count)],
            "batch_label": "batch 1 of 1",
            "fine_labels": [i % 100 for i in range(count)],
            "coarse_labels": [i % 100 // 5 for i in range(count)],
            "data": cifar_pixels(count),
        }
        (folder / part).write_bytes(python2_pickle(content))
    return folder


def python2_pickle(value: object) -> bytes:
    """What Python 2 and an old numpy wrote with protocol 2: byte strings, and numpy.core.multiarray._reconstruct."""
    out = [b"\x80\x02"]

    def text(s: bytes) -> bytes:
        return b"U" + bytes([len(s)]) + s if len(s) < 256 else b"T" + len(s).to_bytes(4, "little") + s

    def number(n: int) -> bytes:
        return b"J" + n.to_bytes(4, "little", signed=True)

    def write(v: object) -> None:
        if isinstance(v, str):
            out.append(text(v.encode("latin-1")))
        elif isinstance(v, int):
            out.append(number(v))
        elif isinstance(v, list):
            out.append(b"](")
            for item in v:
                write(item)
            out.append(b"e")
        elif isinstance(v, dict):
            out.append(b"}(")
            for key, item in v.items():
                write(key)
                write(item)
            out.append(b"u")
        elif isinstance(v, np.ndarray):
            shape = b"(" + b"".join(number(n) for n in v.shape) + b"t"
            dtype = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
            dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
            out.append(
                b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + text(b"b") + b"tR"
            )
            out.append(b"(" + number(1) + shape + dtype + b"\x89" + text(v.tobytes()) + b"tb")
        else:
            raise TypeError(type(v))

    write(value)
    return b"".join([*out, b"."])


class Exploit:
    """What a hostile pickle looks like."""

    def __reduce__(self) -> object:
        import os

        return os.system, ("echo harmed > harmed.txt",)


def hostile_pickle() -> bytes:
    return pickle.dumps({"data": Exploit(), "fine_labels": []}, protocol=2)
