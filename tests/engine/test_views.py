"""Which view of the images, augmented or plain, each method shows to which network, and that views and order change.

The images are made so that a network can tell what it sees: the blue channel of a plain image has the values of
STRIPES, the augmentation makes it 125, and whatever is generated or attacked has others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import Images, Labels, TinyNet, make_blobs, make_learner
from efcil.data.augment import AUGMENTATIONS
from efcil.engine.preprocessing import Preprocessing
from efcil.methods import METHODS

STRIPES = torch.tensor([50.0, 100.0, 100.0, 100.0, 150.0, 150.0, 150.0, 200.0])
GENERATOR = {"iterations": 2, "batch_size": 4, "latent": 5, "width": 4}
OPTIONS: dict[str, dict[str, Any]] = {
    "efc++": {"rebalancing": {"views": 3, "epochs": 4}},
    "acil": {"expansion": 8},
    "ds-al": {"expansion": 8},
    "ranpac": {"expansion": 8},
    "apr": {"pseudo_batch": 4, "pseudo_iterations": 1, "attack_iterations": 1, "attack_limit": 0, "map_epochs": 1},
    "adc": {"iterations": 1},
    "bicyc": {"adaptation": {"epochs": 2, "views": 2}, "draws": 50},
    "abd": {"inversion": GENERATOR},
    "r-dfcil": {"inversion": GENERATOR},
}


class Witness(nn.Module):
    """A backbone that tells what it is shown: which network it is, whether it learns, and which kinds of images."""

    feature_dim = 5
    told: list[str] = []  # noqa: RUF012 (copies of the network tell the same witness)
    old: Witness | None = None
    new: Witness | None = None
    preprocessing: Preprocessing | None = None

    def __init__(self) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, 3 * 8 * 8, generator=rng) / 20)

    def forward(self, x: Tensor) -> Tensor:
        network = "old" if self is Witness.old else "new" if self is Witness.new else "copy"
        if x.any():  # all zeros are what a backbone is tried with before training
            kinds = {kind(image, Witness.preprocessing) for image in x.detach()}
            self.told.append(f"{network} {'learns' if self.training else 'shows'} {'+'.join(sorted(kinds))}")
        return torch.tanh(x.flatten(1) @ self.weight.T)


def kind(image: Tensor, preprocessing: Preprocessing | None) -> str:
    """What this image is, from its blue channel."""
    assert preprocessing is not None
    blue = (image[2] * preprocessing.std[2] + preprocessing.mean[2]) * 255
    if (blue - 125).abs().max() < 0.01:
        return "augmented"
    if (blue[..., None] - STRIPES).abs().amin(-1).max() < 0.01:
        return "plain"
    return "made"


def blue_images(classes: list[str]) -> tuple[Images, Labels]:
    images, labels = make_blobs(classes, 6)
    images[..., 2] = STRIPES.numpy()
    return images, labels


def paint(pixels: Tensor, rng: torch.Generator) -> Tensor:
    """An augmentation that nobody can take for a plain image."""
    painted = pixels.clone()
    painted[:, 2] = 125
    return painted


def told(method: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[dict[str, list[str]]]:
    """What the networks of two tasks are shown in each stage: before the epochs, in one of them, after them."""
    monkeypatch.setitem(AUGMENTATIONS, "crop", paint)
    stages: list[dict[str, list[str]]] = []

    def begin(stage: str) -> None:
        Witness.told = stages[-1][stage] = []

    cls = METHODS[method]
    before_task, prepare, after_task = cls.before_task, cls.prepare, cls.after_task

    def before(self: Any, ctx: Any) -> None:
        Witness.preprocessing, Witness.new = ctx.preprocessing, ctx.model.learner.backbone
        Witness.old = ctx.old and ctx.old.learner.backbone
        stages.append({})
        begin("before")
        before_task(self, ctx)
        begin("epoch")

    def preparing(self: Any, ctx: Any) -> bool:
        Witness.told = stages[-1]["before"]
        prepared = prepare(self, ctx)
        begin("epoch")
        return prepared

    def after(self: Any, ctx: Any) -> None:
        begin("after")
        after_task(self, ctx)
        begin("end")

    monkeypatch.setattr(cls, "before_task", before)
    monkeypatch.setattr(cls, "prepare", preparing)
    monkeypatch.setattr(cls, "after_task", after)
    options = {**OPTIONS.get(method, {}), **changes}
    classifier = make_learner(method, backbone=Witness(), augmentation="crop", options=options)
    tasks = [blue_images(["cat", "dog", "elk"]), blue_images(["ant", "bee"])]
    classifier.partial_fit(*tasks[0])
    classifier.partial_fit(*tasks[1], **({"past": tasks[0]} if classifier.needs_past else {}))
    for stage in stages:  # the check of the network shows plain images, after the epochs and at the very end
        check = [COPY_PLAIN] * (method == "cargo") + [PLAIN]
        assert stage.pop("end") == check
        check = check[-1:] if stage is stages[0] else check  # before there is a copy
        assert [stage["epoch"].pop() for _ in check][::-1] == check
    return stages


def once(told: list[str]) -> list[str]:
    """Every different thing in the order in which it was told first."""
    return list(dict.fromkeys(told))


# What each method shows to its networks: before the epochs of the second task, in an epoch of it, and after the epochs
# of the first and of the second task. The pages of the methods say where each differs from its publication.

LEARNS = "new learns augmented"
DISTILS = [LEARNS, "old shows augmented"]
REPLAYS = ["old shows augmented+made", "new learns augmented+made"]
PLAIN, VIEW = "new shows plain", "new shows augmented"
OLD_PLAIN, OLD_VIEW = "old shows plain", "old shows augmented"
COPY_PLAIN = "copy shows plain"
Shown = tuple[list[str], list[str], list[str], list[str]]
SHOWN: dict[str, Shown] = {
    "cargo": ([OLD_PLAIN], DISTILS, [COPY_PLAIN, PLAIN], [COPY_PLAIN, PLAIN, OLD_PLAIN, OLD_VIEW, VIEW]),
    "efc++": ([], DISTILS, [VIEW], [OLD_VIEW, VIEW]),
    "efc": ([], DISTILS, [VIEW], [OLD_VIEW, VIEW]),
    "ceos-acb": ([], DISTILS, [VIEW], [OLD_VIEW, VIEW]),
    "finetune": ([], [LEARNS], [], []),
    "freeze": ([], [], [PLAIN], [PLAIN]),
    "joint": ([], [LEARNS], [], []),
    "sdc": ([], DISTILS, [PLAIN], [PLAIN, OLD_PLAIN]),
    "acil": ([], [], [PLAIN], [PLAIN]),
    "ds-al": ([], [], [PLAIN], [PLAIN]),
    "fecam": ([], [], [PLAIN], [PLAIN]),
    "fetril": ([], [], [PLAIN], [PLAIN]),
    "lda": ([], [], [PLAIN], [PLAIN]),
    "ranpac": ([], [], [PLAIN], [PLAIN]),
    "lwf": ([], DISTILS, [], []),
    "ewc": ([], [LEARNS], [VIEW], [VIEW]),
    "mas": ([], [LEARNS], [VIEW], [VIEW]),
    "si": ([], [LEARNS], [], []),
    "rwalk": ([], [LEARNS], [VIEW], [VIEW]),
    "lfl": ([], DISTILS, [], []),
    "pass": ([], DISTILS, [VIEW], [VIEW]),
    "il2a": ([], DISTILS, [VIEW], [VIEW]),
    "ssre": ([], DISTILS, [VIEW], [VIEW]),
    "fusion": ([OLD_PLAIN], [*DISTILS, PLAIN], [VIEW], [VIEW]),
    "abd": (["copy shows made"], REPLAYS, [], []),
    "r-dfcil": (["copy shows made"], REPLAYS, [], []),
    "ldc": ([], DISTILS, [PLAIN], [PLAIN, OLD_VIEW, VIEW]),
    "dpcr": ([], DISTILS, [VIEW, PLAIN], [OLD_VIEW, VIEW, PLAIN]),
    "adc": ([], DISTILS, [PLAIN], [PLAIN, OLD_PLAIN, "old shows made", "new shows made"]),
    "adagauss": ([], DISTILS, [PLAIN], [OLD_VIEW, VIEW, PLAIN]),
    "bicyc": ([], DISTILS, [PLAIN], [OLD_VIEW, VIEW, PLAIN]),
    "gatf": ([OLD_VIEW], DISTILS, [PLAIN], [PLAIN]),
    "apr": (
        [OLD_VIEW],
        [OLD_VIEW, "new learns augmented+made", "old shows augmented+made"],
        [PLAIN],
        [PLAIN, OLD_VIEW, "old shows made", "new shows made", VIEW],
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_each_method_sees_the_views_that_its_page_says(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = told(method, monkeypatch)
    assert (first["before"], once(first["epoch"])) == ([], [LEARNS])  # the first task is the same for every method
    seen = (once(second["before"]), once(second["epoch"]), once(first["after"]), once(second["after"]))
    assert seen == SHOWN[method]


@pytest.mark.parametrize(
    ("method", "options", "after"),
    [
        ("efc", {"statistics_view": "train"}, [OLD_VIEW, VIEW, VIEW]),  # drift (both networks), statistics
        ("efc", {"statistics_view": "eval"}, [OLD_PLAIN, PLAIN, PLAIN]),
        ("efc++", {"statistics_view": "train"}, [OLD_VIEW, VIEW, VIEW, VIEW, VIEW, VIEW]),  # re-balancing: three views
        ("efc++", {"statistics_view": "eval"}, [OLD_PLAIN, PLAIN, VIEW, VIEW, VIEW, PLAIN]),  # always augmented
        ("efc++", {"rebalancing": {"views": 3, "epochs": 2}}, [OLD_VIEW, VIEW, VIEW, VIEW, VIEW]),  # no view unused
        ("efc", {"drift": "none"}, [VIEW]),
        ("efc", {"drift": "oracle"}, [VIEW, VIEW]),  # old images, then those of the task
        ("efc", {"drift": "oracle", "statistics_view": "eval"}, [PLAIN, PLAIN]),
        ("efc", {"drift": "efm", "covariance": "oracle", "statistics_view": "eval"}, [OLD_PLAIN, PLAIN, PLAIN, PLAIN]),
        ("efc", {"drift": "linear", "statistics_view": "eval"}, [OLD_PLAIN, PLAIN, PLAIN]),
    ],
)
def test_statistics_come_from_the_view_that_was_chosen(
    method: str, options: dict[str, Any], after: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = told(method, monkeypatch, **options)
    assert second["after"] == after
    assert first["after"] == [PLAIN if options.get("statistics_view") == "eval" else VIEW]


def test_attacked_images_are_plain_ones_whatever_the_statistics_view(monkeypatch: pytest.MonkeyPatch) -> None:
    _, second = told("efc", monkeypatch, drift="adversarial", statistics_view="train")
    assert once(second["after"])[:3] == [OLD_VIEW, VIEW, OLD_PLAIN]


# Order and views: anew in every epoch and task, decided by the seed

Epochs = list[list[Tensor]]  # the batches of each epoch, as the method is given them


def epochs_of(monkeypatch: pytest.MonkeyPatch, augmentation: str, seed: int = 0, count: int = 10) -> Epochs:
    """The batches of two epochs of each of two tasks, which have the same images under other names."""
    shown: Epochs = [[]]

    def augment(self: Any, ctx: Any, batch: Any) -> Any:
        shown[-1].append(batch.x.clone())
        return batch

    monkeypatch.setattr(METHODS["finetune"], "augment", augment)
    monkeypatch.setattr(METHODS["finetune"], "after_epoch", lambda self, ctx: shown.append([]))
    training = {"epochs": 2, "batch_size": 4}
    first = {**training, "rotation": False}
    classifier = make_learner(
        backbone=TinyNet(), augmentation=augmentation, seed=seed, first=first, incremental=training
    )
    images, _ = make_blobs(["cat"], count)
    for task in range(2):
        classifier.partial_fit(images, np.arange(count) % 2 + 2 * task)
    assert shown.pop() == []
    return shown


def as_sets(epochs: Epochs) -> list[set[bytes]]:
    """The images of each epoch, whatever their order."""
    return [{image.numpy().tobytes() for batch in epoch for image in batch} for epoch in epochs]


def as_orders(epochs: Epochs) -> list[bytes]:
    """All images of each epoch in their order."""
    return [torch.cat(epoch).numpy().tobytes() for epoch in epochs]


def test_every_epoch_shows_every_image_once_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = epochs_of(monkeypatch, "none")
    assert [[len(batch) for batch in epoch] for epoch in epochs] == [[4, 4, 2]] * 4
    assert all(images == as_sets(epochs)[0] and len(images) == 10 for images in as_sets(epochs))
    unshuffled = make_blobs(["cat"], 10)[0]
    assert not any(np.array_equal(pixels(epoch), unshuffled) for epoch in epochs)
    assert len(set(as_orders(epochs))) == 4


def pixels(epoch: list[Tensor]) -> Images:
    """The images of an epoch with the brightness they came with: colours as uint8, for the blobs above."""
    images = torch.cat(epoch).permute(0, 2, 3, 1).double()
    original = make_blobs(["cat"], len(images))[0].astype(float) / 255
    restored = images * torch.from_numpy(original.std((0, 1, 2))) + torch.from_numpy(original.mean((0, 1, 2)))
    return (restored * 255).round().numpy().astype(np.uint8)


def test_a_last_batch_of_one_image_joins_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = epochs_of(monkeypatch, "none", count=9)
    assert [[len(batch) for batch in epoch] for epoch in epochs] == [[4, 5]] * 4
    assert all(len(images) == 9 for images in as_sets(epochs))


def test_every_epoch_shows_views_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = as_sets(epochs_of(monkeypatch, "crop_flip"))
    for place, images in enumerate(sets):
        assert len(images) == 10
        for others in sets[:place]:
            assert len(images & others) <= 3  # of 18 places and mirrored or not, few come twice


def test_the_seed_alone_decides_order_and_views(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    orders = as_orders(epochs_of(monkeypatch, "crop_flip", seed=3))
    torch.manual_seed(2)
    assert as_orders(epochs_of(monkeypatch, "crop_flip", seed=3)) == orders
    others = as_orders(epochs_of(monkeypatch, "crop_flip", seed=4))
    assert not set(orders) & set(others)


def test_the_order_is_another_for_another_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not set(as_orders(epochs_of(monkeypatch, "none", 0))) & set(as_orders(epochs_of(monkeypatch, "none", 1)))
