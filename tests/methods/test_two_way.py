"""BiCyc and GATF against slow literal definitions, in float64: losses, who learns from them, maps, moved Gaussians."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import OneLayer, PartialContext, TinyNet, make_blobs, make_learner, normal, random_model, rng_of
from efcil import IncrementalClassifier
from efcil.engine.context import Batch, Context
from efcil.methods.bicyc import Adaptation, BiCyc, adapt
from efcil.methods.gatf import GATF, ridge_map
from efcil.parts.bottleneck import anti_collapse_loss, widened_map
from efcil.parts.two_way import TwoWayOptions, pair_loss, two_way_terms

S = 4
TASKS = [make_blobs(["cat", "dog"], 20), make_blobs(["ant", "bee", "elk"], 20)]
WEIGHTS = TwoWayOptions(lambda_alignment=3.0, lambda_cycle=0.7, lambda_pairs=0.2)


def mse(one: Tensor, other: Tensor) -> Tensor:
    """The mean over all numbers, one row at a time."""
    total = sum(((a - b) ** 2).sum() for a, b in zip(one, other, strict=True))
    return total / one.numel()


def cosines(z: Tensor) -> Tensor:
    """Of every row with every row, one row at a time."""
    return torch.stack([z @ row / (z.square().sum(1).sqrt() * row.square().sum().sqrt()) for row in z])


def fresh_map(seed: int) -> nn.Sequential:
    network = widened_map(S).double()
    with torch.no_grad():
        for index, parameter in enumerate(network.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=seed + index))
    return network


# The losses of both


def literal_terms(old: Tensor, new: Tensor, forth: Any, back: Any, rows: Tensor) -> dict[str, Tensor]:
    """As the publication has them; sg by a copy without history."""
    fixed = new.detach().clone()
    led_back, led_forth = back(new), forth(old)
    return {
        "alignment": 3.0 * (mse(led_back, old) + mse(led_forth, fixed)),
        "cycle": 0.7
        * (mse(forth(led_back.detach().clone()), fixed) + mse(back(led_forth.detach().clone()), old.detach().clone())),
        "pairs": 0.2
        * (mse(cosines(fixed[rows]), cosines(led_forth[rows])) + mse(cosines(old[rows]), cosines(led_back[rows]))),
    }


@pytest.mark.parametrize("size", [7, 131])
def test_the_two_way_losses(size: int) -> None:
    """All cosines of a small batch are compared, of a large one those between 128 of its rows."""
    old, new, forth, back = normal(size, S), normal(size, S, seed=1), fresh_map(10), fresh_map(20)
    rows = torch.randperm(size, generator=rng_of(3))[:128]
    expected = literal_terms(old, new, forth, back, rows)
    terms = two_way_terms(old, new, forth, back, WEIGHTS, rng_of(3))
    assert terms.keys() == expected.keys()
    for name in terms:
        torch.testing.assert_close(terms[name], expected[name])


def test_the_backbone_learns_from_what_is_led_back_alone() -> None:
    """From MSE(D(z_n), z_o) and pair(z_o, D(z_n)); the cycle, and all that A says, leave it alone."""
    old, forth, back, rows = normal(7, S), fresh_map(10), fresh_map(20), torch.arange(7)
    new = normal(7, S, seed=1).requires_grad_()
    terms = two_way_terms(old, new, forth, back, WEIGHTS, rng_of())
    (gradient,) = torch.autograd.grad(sum(terms.values()), [new], retain_graph=True)
    held = 3.0 * mse(back(new), old) + 0.2 * mse(cosines(old[rows]), cosines(back(new)[rows]))
    torch.testing.assert_close(gradient, torch.autograd.grad(held, [new])[0])
    assert torch.autograd.grad(terms["cycle"], [new], allow_unused=True, retain_graph=True)[0] is None
    fixed = new.detach()
    led = forth(old)
    own = 3.0 * mse(led, fixed) + 0.7 * mse(forth(back(fixed).detach()), fixed) + 0.2 * pair_loss(fixed, led)
    ways = (torch.autograd.grad(loss, list(forth.parameters())) for loss in (sum(terms.values()), own))
    for actual, expected in zip(*ways, strict=True):
        torch.testing.assert_close(actual, expected)


def context() -> Any:
    model, old = random_model(OneLayer(48, 6), 2, 3, seed=1), random_model(OneLayer(48, 6), 2, seed=2)
    return PartialContext(
        **{"model": model, "old": old, "known": 2, "classes": 3, "first": False, "task": 1},
        **{"rng": rng_of(0), "device": torch.device("cpu")},
    )


def begun(method: Any, ctx: Any) -> Any:
    """In its second task, in float64."""
    method.bottleneck, method.means = normal(S, 6, seed=5), normal(2, S, seed=6)
    method.before_task(ctx)
    method.trained.double()
    method.maps.double()
    return method


@pytest.mark.parametrize("method", [BiCyc, GATF])
def test_the_whole_loss(method: Any) -> None:
    settings: dict[str, Any] = {"lambda_alignment": 3.0, "lambda_cycle": 0.7, "lambda_pairs": 0.2}
    ctx = context()
    ours = begun(method(method.Options(bottleneck=S, alpha=0.5, beta=0.2, **settings)), ctx)
    if method is GATF:
        ours.anchor, ours.shift = normal(S, S, seed=7), normal(S, seed=8)
        ours.trained["offset"].data.copy_(normal(S, seed=9))
    x, y = normal(7, 3, 4, 4, seed=3), torch.tensor([2, 3, 2, 3, 4, 4, 2])
    ctx.rng = rng_of(4)
    terms = ours.loss(ctx, Batch(x, y))
    with torch.no_grad():
        new = torch.stack([ours.trained["bottleneck"] @ feature for feature in ctx.model.features(x)])
        old = torch.stack([ours.bottleneck @ feature for feature in ctx.old.features(x)])
        logs = [(ours.trained["head"] @ row).log_softmax(0)[label - 2] for row, label in zip(new, y, strict=True)]

        def forth(z: Tensor) -> Tensor:
            if method is BiCyc:
                return ours.maps["forth"](z)  # type: ignore[no-any-return]
            rows = [row @ ours.anchor + ours.shift + ours.trained["offset"] for row in z]
            return torch.stack(rows)

        expected = literal_terms(old, new, forth, ours.maps["back"], torch.arange(7))
    assert list(terms) == ["ce", "anti_collapse", "alignment", "cycle", "pairs"]
    assert terms["ce"].item() == pytest.approx(-float(sum(logs)) / 7)
    assert terms["anti_collapse"].item() == pytest.approx(0.5 * float(anti_collapse_loss(new, 0.2)))
    for name, value in expected.items():
        torch.testing.assert_close(terms[name].detach(), value)


@pytest.mark.parametrize("method", [BiCyc, GATF])
def test_all_that_a_method_trains_is_in_the_optimiser(method: Any) -> None:
    ctx = context()
    ctx.config = make_learner().config
    ours = begun(method(method.Options(bottleneck=S)), ctx)
    if method is GATF:
        ours.anchor, ours.shift = normal(S, S, seed=7), normal(S, seed=8)
    trained = {id(parameter) for group in ours.parameters(ctx) for parameter in group["params"]}
    sum(ours.loss(ctx, Batch(normal(9, 3, 4, 4), torch.tensor([2, 3, 4] * 3))).values()).backward()
    own = [*ctx.model.backbone.parameters(), *ours.trained.parameters(), *ours.maps.parameters()]
    assert trained == {id(parameter) for parameter in own}
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in own)


# BiCyc: the map is trained on for itself, and Gaussians go through it


def literal_adapt(network: nn.Module, views: list[tuple[Tensor, Tensor]], settings: Adaptation, seed: int) -> None:
    """SGD with momentum by hand, α = 0.5 and β = 0.2."""
    rng, rates, speeds = rng_of(seed), [], [torch.zeros_like(p) for p in network.parameters()]
    for epoch in range(10):
        rates.append(settings.lr * 0.1 ** ((epoch >= 3) + (epoch >= 6) + (epoch >= 9)))
        old, new = views[epoch % 2]
        for rows in torch.randperm(len(old), generator=rng).split(settings.batch_size):
            led = network(old[rows])
            loss = mse(led, new[rows]) + 0.5 * anti_collapse_loss(led, 0.2)
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
            with torch.no_grad():
                for parameter, gradient, speed in zip(network.parameters(), gradients, speeds, strict=True):
                    clipped = gradient / max(1.0, norm + 1e-6)
                    speed.mul_(settings.momentum).add_(clipped + settings.weight_decay * parameter)
                    parameter -= rates[-1] * speed


def test_the_map_is_adapted_by_sgd_on_views_in_turn() -> None:
    views = [(normal(13, S, seed=seed), 3 * normal(13, S, seed=seed + 1)) for seed in (1, 3)]
    settings = Adaptation(epochs=10, lr=0.05, momentum=0.8, weight_decay=0.01, batch_size=6, views=2)
    network, expected, started = fresh_map(10), fresh_map(10), fresh_map(10)
    reports: list[tuple[int, int]] = []
    adapt(network, views, settings, 0.5, 0.2, rng_of(2), lambda done, total: reports.append((done, total)))
    literal_adapt(expected, views, settings, seed=2)
    assert reports == [(epoch, 10) for epoch in range(1, 11)]
    for ours, theirs, before in zip(*(net.parameters() for net in (network, expected, started)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(ours, before)


def test_bicyc_moves_gaussians_by_the_adapted_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map that is linear after all moves mean and covariance exactly; views are as many as are used."""
    ctx = context()
    ctx.report = lambda stage: lambda done, total: None
    bicyc = begun(BiCyc(BiCyc.Options(bottleneck=S, draws=60, adaptation=Adaptation(epochs=2, views=5))), ctx)
    bicyc.covariance_factors = normal(2, S, S, seed=7).tril()
    weight, asked = normal(S, S, seed=8), []

    def adapted(network: nn.Module, views: Any, *rest: Any) -> None:
        asked.append((len(views), rest[:3]))
        network.forward = lambda z: z @ weight + 1  # type: ignore[method-assign]

    monkeypatch.setattr("efcil.methods.bicyc.adapt", adapted)
    monkeypatch.setattr(BiCyc, "views", lambda self, ctx, bottleneck: (normal(5, S), normal(5, S)))
    means, factors = bicyc.moved(ctx, bicyc.bottleneck)
    assert asked == [(2, (bicyc.options.adaptation, 1.0, 1.0))]
    for index in range(2):
        covariance = bicyc.covariance_factors[index] @ bicyc.covariance_factors[index].T
        torch.testing.assert_close(means[index], bicyc.means[index] @ weight + 1)
        torch.testing.assert_close(factors[index].T @ factors[index], weight.T @ covariance @ weight)


def test_without_adaptation_gaussians_go_through_the_map_as_it_was_learnt() -> None:
    ctx = context()
    ctx.report = lambda stage: lambda done, total: None
    bicyc = begun(BiCyc(BiCyc.Options(bottleneck=S, draws=20_000, adaptation=Adaptation(epochs=0))), ctx)
    bicyc.covariance_factors = 0.3 * normal(2, S, S, seed=7).tril()
    means, factors = bicyc.moved(ctx, bicyc.bottleneck)
    rng = rng_of(1)
    for index in range(2):
        noise = torch.randn(20_000, S, generator=rng, dtype=torch.float64)
        with torch.no_grad():
            led = bicyc.maps["forth"](bicyc.means[index] + noise @ bicyc.covariance_factors[index].T)
        assert (means[index] - led.mean(0)).norm() < 0.05 * led.std(0).norm()
        covariance = factors[index].T @ factors[index]
        assert (covariance - led.T.cov()).norm() < 0.1 * covariance.norm()


def test_the_rate_of_a_short_adaptation_falls_where_that_of_a_long_one_does() -> None:
    """By 0.1 after 30, 60 and 90 % of the epochs, and never before the first."""
    for epochs, falls in ((1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (10, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3])):
        settings = Adaptation(epochs=epochs, lr=1.0)
        assert [settings.rate(epoch) for epoch in range(epochs)] == pytest.approx([0.1**fall for fall in falls])


def test_few_draws_have_a_covariance_of_full_rank_all_the_same() -> None:
    before, after = (
        taught("bicyc", options={"draws": 2, "adaptation": {"epochs": epochs}})._method for epochs in (0, 1)
    )
    for method in (before, after):
        assert method.covariance_factors.shape == (5, 3, 3)
        assert all(torch.linalg.matrix_rank(factor) == 3 for factor in method.covariance_factors)


def test_a_lesson_takes_the_longer_the_more_old_classes_and_epochs_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efcil.methods.bicyc.seconds_of", lambda work: work() or 1.0)  # what is timed can be done
    ctx = context()
    ctx.images = [0] * 600
    bicyc = begun(BiCyc(BiCyc.Options(bottleneck=S, adaptation=Adaptation(epochs=5, batch_size=256))), ctx)
    bicyc.covariance_factors = torch.eye(S, dtype=torch.float64).repeat(2, 1, 1)
    state = ctx.rng.get_state()
    assert bicyc.seconds_after(ctx) == 5 * 3 + len(bicyc.means)
    assert torch.equal(ctx.rng.get_state(), state)


# GATF: the anchor


def test_the_anchor_is_centred_ridge_whatever_the_metric_of_the_target() -> None:
    """Literally, and as the authors' program has it: target whitened, ridge solved, result un-whitened."""
    old, new, rho = 1 + normal(30, S), normal(30, S, seed=1) @ normal(S, S, seed=2) - 2, 0.3
    mean_old, mean_new = sum(old) / 30, sum(new) / 30
    covariance, cross = torch.zeros(S, S).double(), torch.zeros(S, S).double()
    for x, y in zip(old, new, strict=True):
        covariance += torch.outer(x - mean_old, x - mean_old) / 30
        cross += torch.outer(x - mean_old, y - mean_new) / 30
    literal = torch.linalg.inv(covariance + rho * torch.eye(S)) @ cross
    anchor, shift = ridge_map(old, new, rho)
    torch.testing.assert_close(anchor, literal)
    torch.testing.assert_close(shift, mean_new - mean_old @ literal)
    values, vectors = torch.linalg.eigh((new - mean_new).T @ (new - mean_new) / 30)
    root = vectors @ values.sqrt().diag() @ vectors.T
    whitened = (new - mean_new) @ torch.linalg.inv(root)
    solved = torch.linalg.inv(covariance + rho * torch.eye(S)) @ ((old - mean_old).T @ whitened / 30)
    torch.testing.assert_close(anchor, solved @ root)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_of_a_residual_network_of_zeros_only_the_last_bias_learns(optimizer: Any) -> None:
    """Why A has an offset β and no network beside the anchor."""
    network = widened_map(S)
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    steps = optimizer(network.parameters(), lr=0.05, weight_decay=5e-4)
    old, new = normal(20, S).float(), 3 + normal(20, S, seed=1).float()
    for _ in range(50):
        steps.zero_grad()
        (nn.functional.mse_loss(old + network(old), new) + pair_loss(new, old + network(old))).backward()
        steps.step()
    *rest, last = network.parameters()
    assert all(not parameter.any() for parameter in rest)
    assert last.abs().min() > 0.5


class Noted(GATF):
    """Every estimate says when it was made: the k-th one is a unit in the k-th place of the shift."""

    count = 0

    def estimated(self, ctx: Any, bottleneck: Tensor) -> tuple[Tensor, Tensor]:
        self.count += 1
        return torch.zeros(1, 1).double(), nn.functional.one_hot(torch.tensor(self.count), 30).double()


@pytest.mark.parametrize(
    ("epochs", "interval", "keep"),
    [(200, 10, 0.9), (100, 5, 0.9), (20, 1, 0.9), (8, 1, 0.9**2.5), (30, 2, 0.9 ** (2 / 1.5)), (1, 1, 0.0)],
)
def test_the_anchor_follows_at_the_same_pace_for_any_number_of_epochs(epochs: int, interval: int, keep: float) -> None:
    gatf: Any = Noted(Noted.Options())
    gatf.trained["bottleneck"] = nn.Parameter(torch.zeros(1, 1))
    gatf.anchor, gatf.shift = torch.ones(1, 1).double(), nn.functional.one_hot(torch.tensor(0), 30).double()
    ctx: Any = PartialContext(first=False, config=make_learner(incremental={"epochs": epochs}).config)
    when = []
    for epoch in range(1, epochs + 1):
        gatf.after_epoch(ctx)
        if gatf.count > len(when):
            when.append(epoch)
    assert when == list(range(interval, epochs, interval))
    updates = len(when)
    expected = [keep**updates] + [(1 - keep) * keep ** (updates - k) for k in range(1, updates + 1)]
    torch.testing.assert_close(gatf.shift[: updates + 1], torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(float(gatf.anchor), keep**updates)
    if epochs == 200:
        assert expected[0] == pytest.approx(0.135, abs=5e-4)


def test_the_first_task_has_no_anchor() -> None:
    gatf: Any = Noted(Noted.Options())
    ctx: Any = PartialContext(first=True, old=None, config=make_learner(epochs=4).config)
    assert not gatf.prepare(ctx)
    for _ in range(4):
        gatf.after_epoch(ctx)
    assert gatf.count == 0


@pytest.mark.parametrize("anchor", ["moving", "final"])
def test_gatf_moves_gaussians_exactly(anchor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gatf = begun(GATF(GATF.Options(bottleneck=S, anchor=anchor)), context())
    gatf.covariance_factors = normal(2, S, S, seed=7).tril()
    gatf.anchor, gatf.shift = normal(S, S, seed=8), normal(S, seed=9)
    gatf.trained["offset"].data.copy_(normal(S, seed=10))
    last = normal(S, S, seed=11), normal(S, seed=12)
    monkeypatch.setattr(GATF, "estimated", lambda self, ctx, bottleneck: last)
    offset = gatf.shift + gatf.trained["offset"].detach()
    weight, shift = (gatf.anchor, offset) if anchor == "moving" else last
    means, factors = gatf.moved(context(), gatf.bottleneck)
    for index in range(2):
        covariance = gatf.covariance_factors[index] @ gatf.covariance_factors[index].T
        torch.testing.assert_close(means[index], gatf.means[index] @ weight + shift)
        expected = weight.T @ covariance @ weight + 1e-5 * torch.eye(S)
        torch.testing.assert_close(factors[index].T @ factors[index], expected, rtol=1e-9, atol=1e-9)
        assert torch.equal(factors[index], factors[index].triu())


def taught(method: str, **changes: Any) -> IncrementalClassifier:
    options = {"bottleneck": 3, **changes.pop("options", {})}
    classifier = make_learner(method, backbone=TinyNet(), options=options, **changes)
    for task in TASKS:
        classifier.partial_fit(*task)
    return classifier


def own_features(classifier: IncrementalClassifier, name: str) -> Tensor:
    """The plain images of a class behind the bottleneck, float64."""
    model, preprocessing = classifier._fitted()
    (images,) = [images[labels == name] for images, labels in TASKS if name in labels]
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    with torch.no_grad():
        features = model.features(preprocessing.normalised(pixels, torch.device("cpu"))).double()
    return features @ classifier._method.state()["bottleneck"].double().T


@pytest.mark.parametrize("anchor", ["moving", "final"])
def test_gaussians_of_a_network_that_stays_are_those_of_the_images(anchor: str) -> None:
    """With next to no penalty the first estimate is the identity, and so is one at the end."""
    classifier = taught("gatf", incremental={"epochs": 0}, options={"rho": 1e-9, "anchor": anchor})
    state = classifier._method.state()
    for column, name in enumerate(classifier.classes_.tolist()):
        z, factor = own_features(classifier, name), state["covariance_factors"][column].double()
        torch.testing.assert_close(state["means"][column].double(), z.mean(0), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(factor @ factor.T, z.T.cov(), rtol=1e-3, atol=1e-3)


def test_the_penalty_shrinks_what_the_current_images_hardly_show() -> None:
    """P₀ = (Σ_o + ρ I)⁻¹ Σ_o of the current images, before any step."""
    stayed, shrunk = (
        taught("gatf", incremental={"epochs": 0}, options={"rho": rho})._method.state() for rho in (1e-9, 0.5)
    )
    classifier = taught("gatf", incremental={"epochs": 0}, options={"rho": 0.5})
    z = torch.cat([own_features(classifier, name) for name in ("ant", "bee", "elk")])
    covariance = (z - z.mean(0)).T @ (z - z.mean(0)) / len(z)
    anchor = torch.linalg.inv(covariance + 0.5 * torch.eye(3)) @ covariance
    expected = (stayed["means"][:2].double() - z.mean(0)) @ anchor + z.mean(0)
    torch.testing.assert_close(shrunk["means"][:2].double(), expected, rtol=1e-3, atol=1e-3)


def test_an_estimate_uses_no_more_images_than_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    extract, seen, taken = Context.extract, [], []

    def noting(self: Context, *models: Any, augmented: bool, images: Any = None) -> list[Tensor]:
        seen.append((self.task, augmented, len(self.images if images is None else images)))
        if images is not None:
            taken.append(tuple(images.rows.tolist()))
        return extract(self, *models, augmented=augmented, images=images)

    monkeypatch.setattr(Context, "extract", noting)
    taught("gatf", incremental={"epochs": 3}, options={"anchor_images": 7, "anchor": "final"})
    assert seen == [(0, False, 40), *[(1, True, 7)] * 4, (1, False, 60)]  # at first, after two epochs, at the end
    assert len(set(taken)) == 4  # drawn anew for each
