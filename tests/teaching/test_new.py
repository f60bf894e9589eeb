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
    assert (config.method, config.backbone, config.backbone_training) == ("lda", BACKBONE, "tuned")
    assert not config.first.rotation
    assert config.first.steps == TUNED["first"]["steps"] and config.first.backbone_lr == TUNED["first"]["backbone_lr"]
    assert not new_classifier(tune=True).validates  # the network has seen the photos: some are held back at first


def test_wishes_come_after_these_settings() -> None:
    config = new_classifier(tune=True, changes=["first.steps=7", "seed=3"]).config
    assert (config.first.steps, config.seed) == (7, 3)
    assert config.first.lr == TUNED["first"]["lr"]  # the rest of the section stays
    assert new_classifier("freeze", "efficientnet-lite1").config.backbone == "efficientnet-lite1"


def test_what_cannot_be_is_said_in_a_sentence() -> None:
    with pytest.raises(UserError, match="--tune means the method lda"):
        new_classifier("efc++", tune=True)
    with pytest.raises(UserError, match="is for benchmarks"):
        new_classifier(changes=["stream.steps=3"])
