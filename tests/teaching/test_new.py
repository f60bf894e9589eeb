"""What a new model for one's own photos is made of."""

from __future__ import annotations

import pytest

from efcil.errors import UserError
from efcil.teaching.new import BACKBONE, METHOD, TUNED, new_classifier


def test_without_wishes_nothing_is_trained() -> None:
    config = new_classifier().config
    assert (config.method, config.backbone) == (METHOD, BACKBONE) == ("lda", "efficientnet-lite0")
    assert new_classifier().validates  # a lesson is reported without holding photos back


def test_tune_trains_the_network_within_its_budget_of_steps() -> None:
    config = new_classifier(tune=True).config
    assert (config.method, config.backbone) == ("efc++", BACKBONE)
    assert not config.first.rotation
    assert config.first.steps == config.incremental.steps == TUNED["first"]["steps"]
    assert config.first.backbone_lr == config.incremental.backbone_lr == TUNED["first"]["backbone_lr"]
    assert config.incremental.lr == TUNED["incremental"]["lr"]


def test_wishes_come_after_these_settings() -> None:
    config = new_classifier(tune=True, changes=["incremental.steps=7", "seed=3"]).config
    assert (config.incremental.steps, config.seed) == (7, 3)
    assert config.incremental.lr == TUNED["incremental"]["lr"]  # the rest of the section stays
    assert new_classifier("freeze", "efficientnet-lite1").config.backbone == "efficientnet-lite1"


def test_what_cannot_be_is_said_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"--tune means the method efc\+\+"):
        new_classifier("lda", tune=True)
    with pytest.raises(UserError, match="is for benchmarks"):
        new_classifier(changes=["stream.steps=3"])
