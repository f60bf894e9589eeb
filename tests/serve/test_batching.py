"""Photos of several requests are answered together, each as if it had been alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import torch

from conftest import make_blobs, quick_learner
from efcil import IncrementalClassifier
from efcil.engine.answers import Answers
from efcil.serve.batching import Batcher


@pytest.fixture(scope="module")
def model() -> IncrementalClassifier:
    return quick_learner("lda").partial_fit(*make_blobs(["cat", "dog", "cow"]))


def photos(count: int, seed: int = 0) -> torch.Tensor:
    pixels, _ = make_blobs(["cat", "dog", "cow"], count, seed=seed)
    return torch.from_numpy(pixels[:count]).permute(0, 3, 1, 2).contiguous()


def during(batcher: Batcher, work: Callable[[], Awaitable[Any]]) -> Any:
    """The result of some work while the batcher runs."""

    async def both() -> Any:
        running = asyncio.create_task(batcher.run())
        try:
            return await asyncio.wait_for(work(), 600)
        finally:
            running.cancel()
            batcher.close()

    return asyncio.run(both())


def test_who_asks_together_is_answered_together_and_as_if_alone(model: IncrementalClassifier) -> None:
    seen: list[tuple[int, int]] = []
    asked = [photos(1 + k % 3, seed=k) for k in range(8)]
    batcher = Batcher(0.01, 32, lambda photos, requests: seen.append((photos, requests)))

    async def work() -> list[Answers]:
        return await asyncio.gather(*(batcher.answers(model, pixels) for pixels in asked))

    answers = during(batcher, work)
    assert seen == [(sum(map(len, asked)), 8)]
    for pixels, answer in zip(asked, answers, strict=True):
        alone = model.answers(pixels)
        assert np.allclose(answer.probabilities, alone.probabilities, atol=1e-5)
        assert answer.familiarity is not None and alone.familiarity is not None
        assert np.allclose(answer.familiarity, alone.familiarity, atol=1e-4)


def test_a_large_request_goes_in_parts_and_batches_keep_their_size(model: IncrementalClassifier) -> None:
    seen: list[int] = []
    batcher = Batcher(0, 4, lambda photos, requests: seen.append(photos))
    answer = during(batcher, lambda: batcher.answers(model, photos(10)))
    assert seen == [4, 4, 2]
    assert np.allclose(answer.probabilities, model.answers(photos(10)).probabilities, atol=1e-5)


def test_two_models_are_never_mixed(model: IncrementalClassifier) -> None:
    other = quick_learner("lda").partial_fit(*make_blobs(["red", "blue"]))
    seen: list[int] = []
    batcher = Batcher(0.01, 32, lambda photos, requests: seen.append(photos))

    async def work() -> Any:
        return await asyncio.gather(*(batcher.answers((model, other)[k % 2], photos(1, k)) for k in range(4)))

    answers = during(batcher, work)
    assert [answer.probabilities.shape for answer in answers] == [(1, 3), (1, 2), (1, 3), (1, 2)]
    assert sum(seen) == 4 and max(seen) == 1


def test_waiting_only_for_those_on_their_way(model: IncrementalClassifier) -> None:
    batcher = Batcher(window=60, most=32)

    async def alone() -> float:
        begun = time.monotonic()
        await batcher.answers(model, photos(1))
        return time.monotonic() - begun

    assert during(batcher, alone) < 50
    seen: list[int] = []
    later = Batcher(60, 32, lambda photos, requests: seen.append(requests))

    async def followed() -> None:
        async def second() -> None:
            with later.expected():
                await asyncio.sleep(0.2)
            await later.answers(model, photos(1, 1))

        await asyncio.gather(second(), later.answers(model, photos(1)))

    during(later, followed)
    assert seen == [2]


def test_an_error_reaches_those_who_asked_and_nobody_else(model: IncrementalClassifier) -> None:
    batcher = Batcher(0, 1)

    async def work() -> Any:
        wrong = batcher.answers(quick_learner("lda"), photos(1))
        return await asyncio.gather(wrong, batcher.answers(model, photos(1)), return_exceptions=True)

    failed, good = during(batcher, work)
    assert "has not learnt anything" in str(failed) and good.probabilities.shape == (1, 3)


def test_what_was_given_up_is_not_answered(model: IncrementalClassifier) -> None:
    seen: list[int] = []
    batcher = Batcher(0, 1, lambda photos, requests: seen.append(photos))

    async def work() -> None:
        given_up = asyncio.create_task(batcher.answers(model, photos(8)))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        await batcher.answers(model, photos(1))

    during(batcher, work)
    assert sum(seen) <= 2
