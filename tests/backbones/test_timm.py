"""Backbones of timm, with the real package: names, preprocessing, features, and weights from a file."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from real_timm import real_timm
from safetensors.torch import save_file

from conftest import make_blobs, rng_of
from efcil import IncrementalClassifier
from efcil.backbones import find_pretrained, with_weights, without_weights
from efcil.backbones.pretrained import Architecture
from efcil.errors import UserError

every_kind = pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet"])


def weights_file(name: str, folder: Path) -> str:
    """Random weights of a small model of timm, classifier included, in a file; as the name of a backbone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = real_timm().create_model(name, pretrained=False)
    save_file(network.state_dict(), folder / f"{name}.safetensors")
    return f"timm:{name}:{folder / f'{name}.safetensors'}"


@every_kind
def test_features_are_what_timms_own_model_gives_its_classifier(name: str, tmp_path: Path) -> None:
    backbone = weights_file(name, tmp_path)
    pretrained = find_pretrained(backbone)
    assert pretrained is not None and pretrained.input is not None
    net = with_weights(pretrained).eval()
    other = real_timm().create_model(name, pretrained=False, checkpoint_path="").eval()
    from efcil.backbones.weights import read_weights

    other.load_state_dict(read_weights(Path(backbone.split(":", 2)[2])))
    x = torch.randn(2, 3, pretrained.input.size, pretrained.input.size, generator=rng_of())
    with torch.no_grad():
        expected = other.forward_head(other.forward_features(x), pre_logits=True)
        torch.testing.assert_close(net(x), expected)
    assert net.feature_dim == expected.shape[1]


@every_kind
def test_preprocessing_is_that_of_the_models_own_data_config(name: str, tmp_path: Path) -> None:
    timm = real_timm()
    pretrained = find_pretrained(weights_file(name, tmp_path))
    assert pretrained is not None and pretrained.input is not None
    wanted = timm.data.resolve_model_data_config(timm.create_model(name, pretrained=False))
    seen = pretrained.input
    assert (3, seen.size, seen.size) == wanted["input_size"]
    assert seen.stored == int(seen.size / wanted["crop_pct"])
    assert (seen.mean, seen.std, seen.interpolation) == (wanted["mean"], wanted["std"], wanted["interpolation"])


def test_a_classifier_learns_and_is_loaded_without_the_weights_file(tmp_path: Path) -> None:
    backbone = weights_file("test_vit", tmp_path)
    images, labels = make_blobs(["cat", "dog"], 3, size=40)
    classifier = IncrementalClassifier("freeze", backbone=backbone, device="cpu").partial_fit(images, labels)
    classifier.save(tmp_path / "model.efcil")
    Path(backbone.split(":", 2)[2]).unlink()
    loaded = IncrementalClassifier.load(tmp_path / "model.efcil")
    assert np.array_equal(loaded.decision_function(images), classifier.decision_function(images))
    loaded.partial_fit(*make_blobs(["elk"], 3, size=40))


def test_an_unknown_model_and_weights_of_another_are_refused(tmp_path: Path) -> None:
    backbone = weights_file("test_vit", tmp_path)
    with pytest.raises(UserError, match="no model of timm called 'resnet1888'; did you mean resnet18"):
        find_pretrained("timm:resnet1888")
    other = find_pretrained(backbone.replace("timm:test_vit:", "timm:test_resnet:"))
    assert other is not None
    with pytest.raises(UserError, match="do not fit timm:test_resnet"):
        with_weights(other)


def test_a_fixed_image_size_is_said(tmp_path: Path) -> None:
    images, labels = make_blobs(["cat", "dog"], 2, size=40)
    classifier = IncrementalClassifier("freeze", backbone=weights_file("test_vit", tmp_path), image_size=96)
    with pytest.raises(UserError, match="takes images of 160 pixels only"):
        classifier.partial_fit(images, labels)


def test_weights_that_cannot_be_fetched_tell_how_to_give_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network; the package itself says what went wrong."""
    real_timm()
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # where nobody answers
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", "/nonexistent")
    pretrained = find_pretrained("timm:test_vit")
    assert pretrained is not None
    with pytest.raises(UserError, match=r"timm cannot fetch the weights of test_vit .*backbone='timm:test_vit:FILE'"):
        with_weights(pretrained)


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    for attempt in (lambda: find_pretrained("timm:resnet18"), lambda: without_weights(Architecture("timm:resnet18"))):
        with pytest.raises(UserError, match=r"run: pip install 'efcil\[timm\]'"):
            attempt()
