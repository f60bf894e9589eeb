"""The device that is not there refuses what a GPU refuses, allows what a GPU allows, and says when one would wait."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from pretend import MixedDevices, PretendTensor, waits_counted, without_float64
from torch import Tensor, nn

DEVICE = torch.device("pretend")

REFUSED: dict[str, Callable[[Tensor, Tensor], object]] = {  # for x on the CPU and d on the device, (3, 3) each
    "sum of a tensor here and one there": lambda x, d: x + d,
    "product": lambda x, d: d @ x,
    "in place": lambda x, d: d.add_(x),
    "concatenation": lambda x, d: torch.cat([d, x]),
    "a number of the CPU among numbers of the device": lambda x, d: torch.stack([d.sum(), x.sum()]),
    "a number of the CPU in linear algebra": lambda x, d: torch.addmm(x.sum(), d, d),
    "a tensor of the CPU and a number of the device": lambda x, d: x + d.sum(),
    "a number of the device added in place": lambda x, d: x.add_(d.sum()),
    "indices on the device for a tensor of the CPU": lambda x, d: x[d.argmax(1)],
    "a mask on the device for a tensor of the CPU": lambda x, d: x[d > 0],
    "values of the CPU put into a tensor of the device": lambda x, d: d.index_put_((torch.tensor([0]),), x[:1]),
    "rows gathered by indices of the CPU": lambda x, d: d.gather(0, x.long()),
    "rows selected by indices of the CPU": lambda x, d: d.index_select(0, torch.tensor([0])),
    "rows added by indices of the CPU": lambda x, d: d.index_add(0, torch.tensor([0]), d[:1]),
    "labels on the CPU": lambda x, d: nn.functional.cross_entropy(d, torch.zeros(3, dtype=torch.int64)),
    "weights on the CPU": lambda x, d: nn.Linear(3, 2)(d),
    "a loss of both": lambda x, d: nn.functional.mse_loss(d, x),
    "a generator of the CPU for a new tensor": lambda x, d: torch.rand(3, device=d.device, generator=torch.Generator()),
    "a generator of the CPU for draws in place": lambda x, d: d.normal_(generator=torch.Generator()),
}
ALLOWED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a number of the CPU": lambda x, d: d * torch.tensor(2.0),
    "a number of Python": lambda x, d: 1 - d / 2,
    "indices of the CPU": lambda x, d: d[torch.tensor([2, 0])],
    "a mask of the CPU": lambda x, d: d[x > 0],
    "rows written by indices of the CPU": lambda x, d: d.clone().index_put_((torch.tensor([1]),), d[:1]),
    "a copy": lambda x, d: d.clone().copy_(2 * x),
    "a part that is written from the CPU": lambda x, d: assigned(d.clone(), x),
    "new ones by the device's own generator": lambda x, d: torch.rand(3, device=d.device) * 0 + d,
    "an eigendecomposition": lambda x, d: torch.linalg.eigh(d + d.T)[0],
}


def assigned(d: Tensor, x: Tensor) -> Tensor:
    d[1:] = 3 * x[1:]
    return d


def both() -> tuple[Tensor, Tensor]:
    x = torch.tensor([[1.0, 2.0, 0.5], [-1.0, 3.0, 1.0], [0.2, -2.0, 1.5]])
    return x, x.to(DEVICE)


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_gpu_refuses_is_refused(what: str) -> None:
    with pytest.raises(MixedDevices):
        REFUSED[what](*both())


@pytest.mark.parametrize("what", ALLOWED)
def test_what_a_gpu_allows_has_the_numbers_of_the_cpu(what: str) -> None:
    x, d = both()
    found, expected = ALLOWED[what](x, d), ALLOWED[what](x, x)
    assert isinstance(found, PretendTensor) and found.device == torch.device("pretend", 0)
    assert torch.equal(found.cpu(), expected)


def test_numbers_leave_the_device_only_when_they_are_copied() -> None:
    _, d = both()
    with pytest.raises(RuntimeError, match=r"numpy"):
        d.numpy()
    assert d.cpu().numpy().shape == (3, 3)


def test_a_network_learns_there_as_it_does_here() -> None:
    torch.manual_seed(0)
    here = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    here = here.to(memory_format=torch.channels_last)
    there = copy.deepcopy(here).to(DEVICE).to(memory_format=torch.channels_last)
    x = torch.randn(5, 3, 4, 4)
    for network, images in ((here, x), (there, x.to(DEVICE))):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            network(images).square().sum().backward()
            optimizer.step()
    for one, other in zip(here.state_dict().values(), there.state_dict().values(), strict=True):
        assert other.device.type == "pretend"
        assert torch.equal(one, other.cpu())


@pytest.mark.parametrize(
    ("what", "times"),
    [
        (lambda x, d: d + 1, 0),
        (lambda x, d: d[torch.tensor([0])], -1),
        (lambda x, d: float(d.sum()), 1),
        (lambda x, d: bool((d > 0).all()), 1),
        (lambda x, d: d.tolist(), 1),
        (lambda x, d: d.cpu(), 1),
        (lambda x, d: torch.zeros(3, 3).copy_(d), 1),
        (lambda x, d: d[d > 0], 1),
        (lambda x, d: d.nonzero(), 1),
        (lambda x, d: d.unique(), 1),
        (lambda x, d: x.to(DEVICE), -1),
        (lambda x, d: x.to(DEVICE, non_blocking=True), 0),
        (lambda x, d: torch.tensor([1.0], device=DEVICE), -1),
        (lambda x, d: torch.zeros(3, device=DEVICE), 0),
    ],
)
def test_waiting_for_the_device_is_counted(what: Callable[[Tensor, Tensor], object], times: int) -> None:
    """Once for numbers of the device, or (−1) once until numbers are there."""
    x, d = both()
    with waits_counted() as (reads, sends):
        what(x, d)
    assert (reads.total(), sends.total()) == (max(times, 0), max(-times, 0))


def test_the_device_can_be_one_without_float64() -> None:
    _, d = both()
    with without_float64():
        for made in (d.double, lambda: torch.zeros(2, dtype=torch.float64, device=DEVICE), lambda: d.to(torch.float64)):
            with pytest.raises(TypeError, match="float64"):
                made()
        with pytest.raises(TypeError, match="float64"):
            torch.zeros(2, dtype=torch.float64).to(DEVICE)
        d.cpu().double()
