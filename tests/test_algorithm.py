"""Algorithm 1 and appendix C as sequences: what happens in which order, and with which matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from efcil import IncrementalClassifier
from efcil.methods import consolidation, efc_plus_plus

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (48, 8, 8, 3), dtype=np.uint8)
LABELS = np.repeat(np.arange(4), 12)


def taught(monkeypatch: pytest.MonkeyPatch, method: str, **options: Any) -> tuple[list[str], dict[str, Any], Any]:
    """Two tasks; the stages of the second in their order, what each was given, and the method afterwards."""
    classifier = IncrementalClassifier(method, width=8, epochs=1, augmentation="none", options=options)
    classifier.partial_fit(IMAGES[:24], LABELS[:24])
    order: list[str] = []
    given: dict[str, Any] = {"efm before": classifier._method.memory.efm.clone()}

    def spy(module: Any, name: str) -> None:
        original = getattr(module, name)

        def spying(*args: Any, **kwargs: Any) -> Any:
            order.append(name)
            given[name] = args
            given[f"{name} result"] = original(*args, **kwargs)
            return given[f"{name} result"]

        monkeypatch.setattr(module, name, spying)

    for module, name in (
        (consolidation, "compensate"),
        (efc_plus_plus, "rebalance"),
        (consolidation, "gaussian_prototypes"),
        (consolidation, "empirical_feature_matrix"),
    ):
        spy(module, name)
    classifier.partial_fit(IMAGES[24:], LABELS[24:])
    return order, given, classifier._method


def test_efc_plus_plus_follows_algorithm_1(monkeypatch: pytest.MonkeyPatch) -> None:
    order, given, method = taught(monkeypatch, "efc++", rebalancing={"epochs": 2, "lr": 0.1})
    assert order == ["compensate", "rebalance", "gaussian_prototypes", "empirical_feature_matrix"]
    torch.testing.assert_close(given["compensate"][3], given["efm before"])  # the drift is weighed with E_{t−1}
    moved = given["compensate result"]
    torch.testing.assert_close(given["rebalance"][1].means, moved)  # re-balanced with the prototypes moved before
    weight = given["rebalance result"]
    torch.testing.assert_close(given["empirical_feature_matrix"][1], weight)  # E_t from the re-balanced heads
    assert not torch.equal(weight, given["rebalance"][0])
    torch.testing.assert_close(method.memory.prototypes.means[:2], moved)  # P_{1:t} = P_{1:t−1} ∪ P_t
    torch.testing.assert_close(method.memory.prototypes.means[2:], given["gaussian_prototypes result"].means)


def test_efc_follows_appendix_c(monkeypatch: pytest.MonkeyPatch) -> None:
    order, _, method = taught(monkeypatch, "efc")
    assert order == ["compensate", "gaussian_prototypes", "empirical_feature_matrix"]
    assert len(method.memory.prototypes) == 4


def test_without_drift_update_the_old_prototypes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    order, given, method = taught(monkeypatch, "efc++", drift="none", rebalancing={"epochs": 1})
    assert "compensate" not in order
    torch.testing.assert_close(given["rebalance"][1].means, method.memory.prototypes.means[:2])


def test_normalised_efm_has_mean_eigenvalue_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _, given, method = taught(monkeypatch, "efc++", normalise_efm=True, rebalancing={"epochs": 1})
    values = torch.linalg.eigvalsh(method.memory.efm.double())
    assert values[-3:].mean().item() == pytest.approx(1, abs=1e-4)  # four classes: rank 3
    ratio = method.memory.efm / given["empirical_feature_matrix result"]
    assert ratio.std() / ratio.mean().abs() < 1e-3  # only its size is changed


def test_oracle_means_are_those_of_the_old_images_in_the_new_network() -> None:
    classifier = IncrementalClassifier("efc++", width=8, epochs=1, augmentation="none", options={"drift": "oracle"})
    classifier.partial_fit(IMAGES[:24], LABELS[:24])
    classifier.partial_fit(IMAGES[24:], LABELS[24:], past=(IMAGES[:24], LABELS[:24]))
    model, preprocessing = classifier._fitted()
    pixels = torch.from_numpy(IMAGES[:24]).permute(0, 3, 1, 2)
    with torch.no_grad():
        features = model.features(preprocessing.normalised(pixels, torch.device("cpu")))
    expected = torch.stack([features[:12].mean(0), features[12:].mean(0)])
    torch.testing.assert_close(classifier._method.memory.prototypes.means[:2], expected, rtol=1e-4, atol=1e-5)
