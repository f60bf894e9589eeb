"""Exported files beside plain PyTorch: time for one image and for batches, and what eight bits cost.

    OMP_NUM_THREADS=1 python benchmarks/exporting.py --data-root DIR          # both tables, some minutes
    OMP_NUM_THREADS=1 python benchmarks/exporting.py --data-root DIR speed    # or one of them: speed, int8

DIR holds ``office/amazon/CLASS/*.jpg``. A model is taught 20 photos of each of the ten classes (lda on
efficientnet-lite0, as `efcil learn` has it). Times are processor time on one thread, the shortest of rounds in which
the ways take turns; other programs can only make them longer. Rows are printed as Markdown for benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from efcil import IncrementalClassifier
from efcil.data.images import on_disk
from efcil.export import export_classifier
from efcil.export.check import Answer, Pixels, made_up
from efcil.export.description import described
from efcil.export.eight_bits import quantised
from efcil.export.files import onnx_answer
from efcil.teaching.new import new_classifier

TAUGHT, TESTED, MEASURED = slice(0, 20), slice(20, 60), slice(60, 70)  # photos of each class; all different
Photos = tuple[list[str], npt.NDArray[np.str_]]


def photos(root: Path, part: slice) -> Photos:
    folders = sorted(path for path in (root / "office" / "amazon").iterdir() if path.is_dir())
    paths = [path for folder in folders for path in sorted(folder.iterdir())[part]]
    return [str(path) for path in paths], np.array([path.parent.name for path in paths])


def pixels(classifier: IncrementalClassifier, paths: list[str]) -> Pixels:
    assert classifier.stored_size is not None
    read = on_disk(paths, classifier.stored_size, classifier.interpolation).batch(torch.arange(len(paths)))
    return read.permute(0, 2, 3, 1).contiguous().numpy()  # type: ignore[no-any-return]


def shortest(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of processor time of each, in turns."""
    for work in ways.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            begun = time.process_time()
            work()
            times[name].append(time.process_time() - begun)
    return {name: min(taken) for name, taken in times.items()}


def speed(classifier: IncrementalClassifier, files: dict[str, bytes], images: Pixels) -> None:
    program = torch.export.load(io.BytesIO(files["torch"])).module()
    answer = onnx_answer(files["onnx"])
    print("| images at once | PyTorch | ONNX | ratio | torch.export | ratio |\n|---:|---:|---:|---:|---:|---:|")
    for count, rounds in ((1, 15), (8, 6), (32, 4)):
        batch = images[:count]
        tensor = torch.from_numpy(batch)
        ways: dict[str, Callable[[], object]] = {
            "plain": lambda batch=batch: classifier.answers(batch),
            "onnx": lambda batch=batch: answer(batch),
            "torch": lambda tensor=tensor: program(tensor),
        }
        taken = {name: seconds / count for name, seconds in shortest(ways, rounds).items()}
        cells = [f"{1000 * taken['plain']:.1f} ms"]
        for name in ("onnx", "torch"):
            cells += [f"{1000 * taken[name]:.1f} ms", f"{taken['plain'] / taken[name]:.2f}×"]
        print(f"| {count} | {' | '.join(cells)} |", flush=True)


# Eight bits


def int8(classifier: IncrementalClassifier, full: bytes, root: Path) -> None:
    paths, true = photos(root, TESTED)
    tested, shown = pixels(classifier, paths), pixels(classifier, photos(root, MEASURED)[0])
    about = described(classifier, ["unknown"])
    made = {
        "float32": full,
        "int8": quantised(full, shown, about),
        "int8, ranges of made-up images": quantised(full, made_up(tested.shape[1], 32), about),
        "int8, convolutions alone": quantised(full, shown, about, ("Conv",)),
    }
    answers: dict[str, Answer] = {name: onnx_answer(content) for name, content in made.items()}
    ways: dict[str, Callable[[], object]] = {
        name: lambda answer=answer: answer(tested[:1]) for name, answer in answers.items()
    }
    taken = shortest(ways, 15)
    print("| | named rightly | answer of float32 | unknown | largest difference | one image | size |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    before: Any = None
    for name, answer in answers.items():
        parts = [answer(part) for part in np.array_split(tested, len(tested) // 20)]
        said = {key: np.concatenate([part[key] for part in parts]) for key in ("probabilities", "unknown")}
        before = said["probabilities"] if before is None else before
        best = said["probabilities"].argmax(1)
        right, same = np.mean(classifier.classes_[best] == true), np.mean(best == before.argmax(1))
        apart = np.abs(said["probabilities"] - before).max()
        print(
            f"| {name} | {right:.1%} | {same:.1%} | {said['unknown'].mean():.1%} | {apart:.2f} "
            f"| {1000 * taken[name]:.1f} ms | {len(made[name]) / 1e6:.1f} MB |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["speed", "int8"], help="one of the tables only")
    parser.add_argument("--data-root", type=Path, required=True)
    args = parser.parse_args()
    classifier = new_classifier()
    classifier.progress = False
    classifier.partial_fit(*photos(args.data_root, TAUGHT))
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        for format in ("onnx", "torch"):
            made = export_classifier(classifier, Path(folder, format), format)
            files[format] = Path(folder, format).read_bytes()
            print(f"{format}: {made.bytes / 1e6:.1f} MB, differs by {made.largest_difference:.1g}", file=sys.stderr)
    if args.what != "int8":
        speed(classifier, files, pixels(classifier, photos(args.data_root, TESTED)[0][::12]))
    if args.what != "speed":
        int8(classifier, files["onnx"], args.data_root)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
