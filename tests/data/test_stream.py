"""Streams of tasks: which classes arrive when, and with which images."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from efcil.config import DataConfig, StreamConfig
from efcil.data import load
from efcil.data.dataset import DataSet
from efcil.data.images import ImageSet, Pixels
from efcil.data.stream import Stream
from efcil.errors import UserError


def data_set(classes: int = 10, domains: list[str] | None = None) -> DataSet:
    """Class i has i + 3 training and 2 test images, in mixed order; the pixels of an image say its class and part."""
    parts = []
    for part, count in enumerate((lambda i: i + 3, lambda i: 2)):
        labels = torch.cat([torch.full((count(i),), i) for i in range(classes)])
        labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(part))]
        pixels = torch.stack([labels, torch.full_like(labels, part), labels], dim=1).to(torch.uint8)
        parts.append((ImageSet(Pixels(pixels[:, :, None, None].expand(-1, -1, 4, 4).contiguous())), labels))
    (train, train_labels), (test, test_labels) = parts
    return DataSet(train, train_labels, test, test_labels, [f"class {i}" for i in range(classes)], domains)


def stream(seed: int = 0, classes: int = 10, **config: Any) -> Stream:
    return Stream(data_set(classes), StreamConfig(**config), seed)


def marks(images: ImageSet) -> Tensor:
    """The class and the part (0 training, 1 test) that the pixels of each image tell, (N, 2)."""
    return images.batch(torch.arange(len(images)))[:, :2, 0, 0]


def test_a_cold_start_has_equal_tasks() -> None:
    cold = stream(kind="cold", steps=5)
    assert len(cold) == len(list(cold)) == 5
    assert cold.classes_per_task == [2, 2, 2, 2, 2]
    assert cold.first_step == 1


def test_a_warm_start_has_a_large_step_0() -> None:
    warm = stream(kind="warm", steps=3, first_classes=4)
    assert warm.classes_per_task == [4, 2, 2, 2]
    assert warm.first_step == 0


def test_a_cold_start_can_be_a_warm_one_without_its_step_0() -> None:
    warm = stream(seed=3, kind="warm", steps=3, first_classes=4)
    cold = stream(seed=3, kind="cold", steps=3, skip_classes=4)
    assert cold.splits == warm.splits[1:] and cold.first_step == 1
    with pytest.raises(UserError, match="10 classes, 8 of them left out"):
        stream(kind="cold", steps=3, skip_classes=8)
    with pytest.raises(UserError, match="skip_classes must be at least 0"):
        stream(skip_classes=-1)


def test_a_stream_can_end_early() -> None:
    whole = stream(seed=3, kind="warm", steps=3, first_classes=4)
    assert stream(seed=3, kind="warm", steps=3, first_classes=4, tasks=2).splits == whole.splits[:2]
    assert stream(seed=3, kind="warm", steps=3, first_classes=4, tasks=9).splits == whole.splits
    with pytest.raises(UserError, match="tasks must be at least 1"):
        stream(tasks=0)


@settings(deadline=None)
@given(classes=st.integers(2, 40), steps=st.integers(1, 40), first=st.integers(0, 40), seed=st.integers(0, 1000))
def test_every_class_arrives_exactly_once(classes: int, steps: int, first: int, seed: int) -> None:
    config = StreamConfig(kind="warm" if first else "cold", steps=steps, first_classes=first)
    data = data_set(classes)
    if classes - first < steps:
        with pytest.raises(UserError, match=r"too few for .* steps; lower stream.steps"):
            Stream(data, config, seed)
        return
    made = Stream(data, config, seed)
    assert Counter(name for split in made.splits for name in split) == Counter(data.names)
    sizes = made.classes_per_task[1:] if first else made.classes_per_task
    assert len(sizes) == steps and max(sizes) - min(sizes) <= 1 and min(sizes) >= 1
    assert not first or made.classes_per_task[0] == first


def test_uneven_splits_put_the_larger_tasks_first() -> None:
    assert stream(kind="cold", steps=4).classes_per_task == [3, 3, 2, 2]
    assert stream(kind="warm", steps=3, first_classes=3).classes_per_task == [3, 3, 2, 2]


def test_the_class_order_follows_the_seed() -> None:
    assert stream(seed=3, steps=5).splits == stream(seed=3, steps=5).splits
    assert len({str(stream(seed=seed, steps=5).splits) for seed in range(5)}) == 5
    assert stream(seed=3, steps=5, shuffle=False).splits[0] == ["class 0", "class 1"]


def test_a_warm_and_a_cold_start_of_one_seed_share_the_class_order() -> None:
    orders = [
        [name for split in stream(seed=7, **config).splits for name in split]
        for config in ({"steps": 5}, {"kind": "warm", "steps": 2, "first_classes": 6})
    ]
    assert orders[0] == orders[1]


def test_a_task_holds_all_images_of_its_classes_and_no_other() -> None:
    made = stream(steps=4)
    for index, task in enumerate(made):
        assert task.classes == made.splits[index]
        wanted = {int(name.split()[1]) for name in task.classes}
        for part, (images, labels) in enumerate(((task.train, task.train_labels), (task.test, task.test_labels))):
            seen = marks(images)
            assert (seen[:, 1] == part).all()
            assert [f"class {label}" for label in seen[:, 0].tolist()] == labels.tolist()
            assert Counter(seen[:, 0].tolist()) == {label: label + 3 if part == 0 else 2 for label in wanted}


def test_the_past_is_everything_before() -> None:
    made = stream(steps=5)
    for index in range(1, 6):
        past = made.past(index)
        before = [made.task(i) for i in range(index)]
        assert past.classes == [name for split in made.splits[:index] for name in split]
        assert len(past.train) == sum(len(task.train) for task in before)
        assert len(past.test) == sum(len(task.test) for task in before)
        assert set(past.test_labels) == set(past.classes)
        assert sorted(past.train_labels) == sorted(np.concatenate([task.train_labels for task in before]))
    assert len(made.past(0).train) == len(made.past(0).classes) == 0


def test_domains_come_in_their_own_order_whatever_the_seed() -> None:
    data = data_set(6, ["photo", "sketch", "photo", "art", "sketch", "photo"])
    for seed in (0, 1):
        made = Stream(data, StreamConfig(kind="domain"), seed)
        assert made.splits == [["class 0", "class 2", "class 5"], ["class 1", "class 4"], ["class 3"]]
        assert made.first_step == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "domain"}, "needs a data set with domains"),
        ({"kind": "warm", "steps": 2}, "positive for a warm start"),
        ({"kind": "cold", "first_classes": 2}, "0 for a cold start"),
        ({"kind": "cold", "steps": 11}, "10 classes, 0 of them in step 0, leave too few for 11 steps"),
        ({"kind": "warm", "steps": 4, "first_classes": 7}, "7 of them in step 0"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"kind": "warm", "first_classes": -1}, "first_classes must be at least 0"),
    ],
)
def test_streams_that_cannot_be_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        stream(**config)


def test_images_per_class_keeps_the_first_of_each_class_and_every_test_image() -> None:
    whole, few = (load(DataConfig(name="digits", images_per_class=count), None) for count in (None, 5))
    assert Counter(few.train_labels.tolist()) == dict.fromkeys(range(10), 5)
    assert len(few.test) == len(whole.test)
    for label in range(10):
        first = whole.train.batch((whole.train_labels == label).nonzero().squeeze(1)[:5])
        assert torch.equal(few.train.batch((few.train_labels == label).nonzero().squeeze(1)), first)


def test_images_per_class_above_what_there_is_keeps_all() -> None:
    assert len(data_set().limited(1000).train) == len(data_set().train)


def test_held_out_images_are_measured_on_instead_of_the_test_images_and_not_learnt() -> None:
    whole, split = (load(DataConfig("digits", held_out=count), None) for count in (0, 7))
    few = load(DataConfig("digits", images_per_class=5, held_out=7), None)
    for label in range(10):
        images = whole.train.batch((whole.train_labels == label).nonzero().squeeze(1))
        for part, labels, expected in (
            (split.train, split.train_labels, images[:-7]),
            (split.test, split.test_labels, images[-7:]),
            (few.train, few.train_labels, images[:5]),
            (few.test, few.test_labels, images[-7:]),
        ):
            assert torch.equal(part.batch((labels == label).nonzero().squeeze(1)), expected)


def test_holding_out_all_images_of_a_class_is_refused() -> None:
    with pytest.raises(UserError, match=r"only 3 training images; data\.held_out=3"):
        data_set().holding_out(3)


def test_an_unknown_data_set_names_the_nearest() -> None:
    with pytest.raises(UserError, match="no data set called 'digit'; did you mean digits"):
        load(DataConfig(name="digit"), None)
