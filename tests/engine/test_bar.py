"""The bar that a person sees while a lesson is learnt."""

from __future__ import annotations

from conftest import make_blobs, make_learner
from efcil.engine.bar import Bar


def test_the_bar_is_full_when_the_last_epoch_ends() -> None:
    """Rotations count as images: without them it would be full after a quarter of the first task."""
    learner = make_learner("finetune", first={"epochs": 2, "rotation": True}, progress=False)
    images, labels = make_blobs(["a", "b"])
    with Bar() as bar:
        learner.watcher = bar
        learner.partial_fit(images, labels)
    assert bar.images == bar.seen == 4 * 2 * len(images)
