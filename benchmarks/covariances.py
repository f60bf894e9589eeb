"""What each kind of kept covariance costs and gives, on one network: a finished run of efc++ that kept its states.

    efcil run cifar100-cold10-fast --method efc++ --data-root DIR --out runs --keep-states
    OMP_NUM_THREADS=1 python benchmarks/covariances.py runs/cifar100-cold10-fast_efc++_seed0 --data-root DIR

The state after the last step has full Gaussians of all classes. Of those of the old classes as much is kept as each
kind does, and fresh heads are trained as in the last re-balancing: on draws of the old classes and two views of the
images of the last task. Measured: bytes, processor seconds of the training, accuracy on all test images and on those of
old classes. Whole runs with each kind, whose networks differ too:

    efcil bench --presets cifar100-cold10-fast --methods @covariances --seeds 0-2
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor

from efcil.analysis.kept import columns, everything, features, memory_of
from efcil.analysis.runs import read_runs
from efcil.paper.covariances import KeptCovariance
from efcil.paper.prototypes import GaussianPrototypes
from efcil.paper.rebalancing import rebalance

KINDS = (
    KeptCovariance(),
    KeptCovariance(dtype="float16"),
    *(KeptCovariance("low-rank", rank) for rank in (64, 32, 16, 8)),
    *(KeptCovariance("low-rank", rank, "float16") for rank in (64, 32)),
    KeptCovariance("shared"),
    KeptCovariance("diagonal"),
    KeptCovariance("diagonal", dtype="float16"),
)


def old_ones(prototypes: GaussianPrototypes, known: int, kept: KeptCovariance) -> GaussianPrototypes:
    """Of the first classes as much as this kind keeps."""
    factors = (prototypes.whole_factor(index) for index in range(known))
    return GaussianPrototypes.of(prototypes.means[:known], factors, prototypes.counts[:known], kept)


def accuracy(weight: Tensor, seen: Tensor, owners: Tensor) -> float:
    return 100 * float(((seen @ weight.T).argmax(1) == owners).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data-root", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    (run,) = read_runs([args.run])
    stream = run.stream(args.data_root)
    classifier, memory = memory_of(run.states[-1])
    settings = classifier._method.options.rebalancing
    last, tests = stream.task(len(stream) - 1), everything(stream)
    known = len(classifier.classes_) - classifier.tasks_[-1]
    views = [features(classifier, last.train, view) for view in range(2)]
    new = columns(classifier, last.train_labels)
    seen, owners = features(classifier, tests.test), columns(classifier, tests.test_labels)
    print(
        "| kept | bytes of the old classes | processor seconds | accuracy | on old classes |\n|---|---:|---:|---:|---:|"
    )
    for kept in KINDS:
        prototypes = old_ones(memory.prototypes, known, kept)
        size = sum(tensor.nbytes for tensor in prototypes.state().values())
        start = time.process_time()
        fresh = torch.zeros(len(classifier.classes_), views[0].shape[1])
        weight = rebalance(fresh, prototypes, views, new, settings, torch.Generator().manual_seed(0))
        seconds = time.process_time() - start
        name = f"{kept.kind} {kept.rank}" if kept.kind == "low-rank" else kept.kind
        old = owners < known
        both = accuracy(weight, seen, owners), accuracy(weight, seen[old], owners[old])
        print(f"| {name}, {kept.dtype} | {size:,} | {seconds:.1f} | {both[0]:.2f} | {both[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
