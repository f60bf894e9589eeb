"""What several test files share: tiny learnable images, tiny classifiers, and the command line as a real process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from efcil import IncrementalClassifier
from efcil.engine.context import Context
from efcil.engine.model import IncrementalModel
from efcil.engine.repeated import Repeated

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[Any]

GENERATOR = {"iterations": 2, "batch_size": 4, "latent": 5, "width": 4}
QUICK: dict[str, dict[str, Any]] = {  # options of methods, to save time only
    "efc++": {"rebalancing": {"views": 2, "epochs": 3}},
    "cargo": {"rank": 5},
    "acil": {"expansion": 48},
    "ds-al": {"expansion": 48},
    "ranpac": {"expansion": 48},
    "adagauss": {"bottleneck": 6},
    "bicyc": {"bottleneck": 6, "adaptation": {"epochs": 3, "views": 2}, "draws": 50},
    "gatf": {"bottleneck": 6},
    "apr": {"pseudo_batch": 8, "attack_limit": 20, "map_epochs": 2},
    "abd": {"inversion": GENERATOR},
    "r-dfcil": {"inversion": GENERATOR},
}

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
FLAGS += ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]  # a camera that shows a moving disc
FLAGS += ["--host-resolver-rules=MAP workshop.test 127.0.0.1"]  # a name to which browsers lend no camera


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Bit-equality is promised for a fixed number of threads; one is also the fastest for such small nets."""
    torch.set_num_threads(1)


# A device that torch is told of changes the whole process: derivatives get a thread for it, after which nothing can
# fork. So tests/device has a process of its own, which tests/test_on_another_device.py starts (EFCIL_PRETEND=1 pytest
# tests/device does the same by hand).
collect_ignore_glob = [] if os.environ.get("EFCIL_PRETEND") else ["device/test_*.py"]


TESTED_SLOWLY = {
    *("lfl", "mas", "si", "rwalk", "il2a", "sdc", "ldc", "adc", "dpcr", "adagauss", "apr", "acil", "ds-al", "ranpac"),
    *("bicyc", "gatf", "ceos-acb"),
}
PROMISES = ("test_contract", "test_lessons", "test_changes", "test_export_methods", "test_views", "test_weight_zero")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What every method promises is tested of these methods with the slow tests: it takes minutes."""
    for item in items:
        given = item.callspec.params if item.path.stem in PROMISES and hasattr(item, "callspec") else {}
        if {"case", "method"} & given.keys() and not TESTED_SLOWLY.isdisjoint(map(str, given.values())):
            item.add_marker(pytest.mark.slow)


def make_blobs(classes: Any, per_class: int = 6, size: int = 8, seed: int = 0) -> tuple[Images, Labels]:
    """Noise around one colour per class, uint8 (N, size, size, 3); the same class always has the same colour."""
    rng = np.random.default_rng(seed)
    classes = np.asarray(classes)
    colours = np.stack([np.random.default_rng(list(str(name).encode())).integers(40, 215, 3) for name in classes])
    labels = np.repeat(np.arange(len(classes)), per_class)
    pixels = colours[labels][:, None, None] + rng.normal(0, 20, (len(labels), size, size, 3))
    return pixels.clip(0, 255).astype(np.uint8), classes[labels]


def make_learner(method: str = "finetune", **changes: Any) -> IncrementalClassifier:
    """A classifier that learns in a fraction of a second, and writes its checkpoint after every epoch."""
    settings: dict[str, Any] = {"width": 4, "stem_stride": 2, "epochs": 1, "augmentation": "none", "device": "cpu"}
    return IncrementalClassifier(method, **{**settings, "checkpoint_seconds": 0.0, **changes})


class TinyNet(nn.Module):
    """A backbone of one's own: the mean colour and the contrast of an image, mixed; any image size."""

    feature_dim = 6

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, self.feature_dim)
        with torch.no_grad():
            self.linear.weight.copy_(torch.linspace(-1, 1, 36).sin().view(6, 6))
            self.linear.bias.fill_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        statistics = torch.cat([x.mean((2, 3)), x.std((2, 3))], dim=1)
        return torch.relu(self.linear(statistics))


def quick_learner(method: str = "finetune", **changes: Any) -> IncrementalClassifier:
    """A classifier over a backbone of six features, which learns in milliseconds."""
    return make_learner(method, **{"backbone": TinyNet(), "first": {"lr": 0.05, "epochs": 30}, **changes})


def write_images(folder: Path, images: Images) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index:03}.png" for index in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


def write_class_folders(root: Path, images: Images, labels: Labels) -> Path:
    for name in np.unique(labels):
        write_images(root / name, images[name == labels])
    return root


class OneLayer(nn.Module):
    """A backbone as small as can be, for which a turned image is another image: tanh of one layer on the pixels."""

    def __init__(self, pixels: int, feature_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.layer = nn.Linear(pixels, feature_dim)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.flatten(1)))


def random_model(backbone: nn.Module, *heads: int, seed: int) -> IncrementalModel:
    """A model with heads of so many classes, all its parameters drawn anew, in float64."""
    rng = rng_of(seed)
    model = IncrementalModel(backbone)
    for classes in heads:
        model.grow(classes, rng)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng))
    return model.double()


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal draws in float64."""
    return torch.randn(*shape, generator=rng_of(seed), dtype=torch.float64)


def rng_of(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def run_cli(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """The command line as a user runs it, in a process of its own."""
    return subprocess.run(cli_command(*arguments), capture_output=True, text=True, env=cli_environment(), check=False)


def cli_command(*arguments: Any) -> list[str]:
    return [str(Path(sys.executable).with_name("efcil")), *map(str, arguments)]


def cli_environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160", "NO_COLOR": "1"}


def missing(what: str) -> None:
    """Skip a test for want of something outside the project, or fail where everything must be at hand."""
    (pytest.fail if os.environ.get("EFCIL_REQUIRE_ALL") else pytest.skip)(what)


def real_data(name: str) -> Path:
    """The folder of real images with this name under EFCIL_DATA."""
    folder = Path(os.environ.get("EFCIL_DATA", "")) / name
    if "EFCIL_DATA" not in os.environ or not folder.is_dir():
        missing(f"set EFCIL_DATA to a folder that holds {name} to test with the real images")
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window, one for each file of tests."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        missing("chromium is not installed; Debian has it: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("playwright is not installed; it comes with the extra dev")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=FLAGS, timeout=600_000)
        yield opened
        opened.close()


class PartialContext(SimpleNamespace):
    """Of a Context only what a test gives, and the old network's features as the real one has them."""

    old_features, repeated = Context.old_features, Repeated()


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest tensor of each type had that was made meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[torch.dtype, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.numbers[made.dtype] = max(made.numel(), self.numbers.get(made.dtype, 0))
        return made
