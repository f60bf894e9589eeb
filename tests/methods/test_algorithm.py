"""Algorithm 1 and appendix C as sequences: what happens in which order, and with which matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from efcil import IncrementalClassifier
from efcil.paper import rebalancing
from efcil.parts import consolidation

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
        (consolidation, "fisher_diagonal"),
        (consolidation, "compensate"),
        (rebalancing, "rebalance"),
        (consolidation, "GatheredPrototypes"),
        (consolidation, "matrix_of"),
    ):
        spy(module, name)
    classifier.partial_fit(IMAGES[24:], LABELS[24:])
    return order, given, classifier._method


def test_efc_plus_plus_follows_algorithm_1(monkeypatch: pytest.MonkeyPatch) -> None:
    order, given, method = taught(monkeypatch, "efc++", rebalancing={"epochs": 2, "lr": 0.1})
    assert order == ["compensate", "rebalance", "GatheredPrototypes", "matrix_of"]
    torch.testing.assert_close(given["compensate"][3], given["efm before"])  # the drift is weighed with E_{t−1}
    moved = given["compensate result"]
    torch.testing.assert_close(given["rebalance"][1].means, moved)  # re-balanced with the prototypes moved before
    weight = given["rebalance result"]
    torch.testing.assert_close(given["matrix_of"][2], weight)  # E_t from the re-balanced heads
    assert not torch.equal(weight, given["rebalance"][0])
    torch.testing.assert_close(method.memory.prototypes.means[:2], moved)  # P_{1:t} = P_{1:t−1} ∪ P_t
    torch.testing.assert_close(
        method.memory.prototypes.means[2:], given["GatheredPrototypes result"].prototypes().means
    )


def test_efc_follows_appendix_c(monkeypatch: pytest.MonkeyPatch) -> None:
    order, _, method = taught(monkeypatch, "efc")
    assert order == ["compensate", "GatheredPrototypes", "matrix_of"]
    assert len(method.memory.prototypes) == 4


def test_without_drift_update_the_old_prototypes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    order, given, method = taught(monkeypatch, "efc++", drift="none", rebalancing={"epochs": 1})
    assert "compensate" not in order
    torch.testing.assert_close(given["rebalance"][1].means, method.memory.prototypes.means[:2])


def test_the_kernel_with_plain_distances_is_the_update_without_the_efm(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"drift": "kernel", "sigma": 0.4, "kernel": "literal", "rebalancing": {"epochs": 1}}
    order, given, method = taught(monkeypatch, "efc++", **options)
    assert order[0] == "compensate"
    assert given["compensate"][3:] == (None, 0.4, "literal")
    torch.testing.assert_close(method.memory.prototypes.means[:2], given["compensate result"])


def test_normalised_efm_has_mean_eigenvalue_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _, given, method = taught(monkeypatch, "efc++", normalise_efm=True, rebalancing={"epochs": 1})
    values = torch.linalg.eigvalsh(method.memory.efm.double())
    assert values[-3:].mean().item() == pytest.approx(1, abs=1e-4)  # four classes: rank 3
    ratio = method.memory.efm / given["matrix_of result"]
    assert ratio.std() / ratio.mean().abs() < 1e-3  # only its size is changed


def test_efim_is_measured_on_the_latest_task_with_the_rebalanced_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    order, given, method = taught(monkeypatch, "efc++", regularizer="efim", rebalancing={"epochs": 1, "lr": 0.1})
    assert order.index("fisher_diagonal") > order.index("rebalance")
    torch.testing.assert_close(given["fisher_diagonal"][0].weight, given["rebalance result"])
    assert torch.equal(method.state()["fisher"], given["fisher_diagonal result"])  # not fused with the one before


@pytest.mark.parametrize("drift", ["efm", "oracle"])
@pytest.mark.parametrize("covariance", ["kept", "oracle"])
def test_oracle_statistics_are_those_of_the_old_images_in_the_new_network(drift: str, covariance: str) -> None:
    """The arms of Table 6."""
    options = {"drift": drift, "covariance": covariance, "rebalancing": {"epochs": 1}}
    classifier = IncrementalClassifier("efc++", width=8, epochs=1, augmentation="none", options=options)
    classifier.partial_fit(IMAGES[:24], LABELS[:24])
    before = classifier._method.memory.prototypes
    past = (IMAGES[:24], LABELS[:24])
    classifier.partial_fit(IMAGES[24:], LABELS[24:], past=past)
    model, preprocessing = classifier._fitted()
    pixels = torch.from_numpy(IMAGES[:24]).permute(0, 3, 1, 2)
    with torch.no_grad():
        features = model.features(preprocessing.normalised(pixels, torch.device("cpu"))).double()
    after = classifier._method.memory.prototypes
    for index, rows in enumerate((features[:12], features[12:])):
        true_mean = torch.allclose(after.means[index].double(), rows.mean(0), rtol=1e-4, atol=1e-5)
        true_covariance = torch.allclose(after.covariance(index).double(), rows.T.cov(), rtol=1e-3, atol=1e-4)
        assert true_mean == (drift == "oracle")
        assert true_covariance == (covariance == "oracle")
        assert torch.equal(after.factors[index], before.factors[index]) == (covariance == "kept")


@pytest.mark.parametrize("drift", consolidation.COMPENSATORS)
def test_a_compensator_carries_means_and_covariances(monkeypatch: pytest.MonkeyPatch, drift: str) -> None:
    original = consolidation.COMPENSATORS[drift]
    results = []

    def spying(*args: Any) -> Any:
        results.append(original(*args))
        return results[-1]

    monkeypatch.setitem(consolidation.COMPENSATORS, drift, spying)
    order, given, method = taught(monkeypatch, "efc++", drift=drift, rebalancing={"epochs": 1})
    assert "compensate" not in order
    ((means, factors),) = results
    torch.testing.assert_close(given["rebalance"][1].means, means)
    for kept, carried in zip(method.memory.prototypes.factors[:2], factors, strict=True):
        assert torch.equal(kept, carried)
