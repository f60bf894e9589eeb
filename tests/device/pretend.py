"""A device that is not there: tensors that claim to be on it and carry their numbers in the memory of the CPU.

``torch.device("pretend")`` is known to torch like a GPU: networks move to it, factories make tensors on it, autograd
has a thread for it. Whatever a GPU would refuse is refused: a tensor of the CPU beside one of the device, a generator
of the CPU for draws on the device. What a GPU allows is allowed: numbers (tensors without dimensions) of the CPU in
elementwise operations, index tensors of the CPU for tensors of the device. Everything is computed by the CPU's
own operations, so that results are those of the CPU to the last bit.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

aten = torch.ops.aten

TAKES_CPU_INDICES = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
COPIES = {aten.copy_.default, aten._to_copy.default}
WAITS = {aten._local_scalar_dense.default, aten.equal.default}


FACTORIES = (
    *(aten.arange.default, aten.arange.start, aten.arange.start_step, aten.eye.default, aten.eye.m),
    *(aten.linspace.default, aten.randperm.default, aten.randperm.generator, aten.tril_indices.default),
    *(aten.triu_indices.default,),
)


class MixedDevices(RuntimeError):
    """What a GPU would refuse."""


class Rules:
    """What is counted and refused at the moment, in all threads."""

    lock = threading.Lock()
    float64 = True  # Apple's mps has none
    reads: Counter[str] | None = None
    sends: ClassVar[Counter[str]] = Counter()


class PretendTensor(Tensor):
    """A tensor that says it is on the device."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> PretendTensor:
        made: PretendTensor = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=torch.device("pretend", 0),
        )
        made.inner = inner
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"PretendTensor({self.inner!r})"

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, other: PretendTensor) -> None:
        Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self.inner = other.inner

    def __deepcopy__(self, memo: dict[int, Any]) -> PretendTensor:
        copied = PretendTensor(self.inner.detach().clone()).requires_grad_(self.requires_grad)
        for name, value in vars(self).items():  # such as being a parameter
            if name != "inner":
                setattr(copied, name, value)
        memo[id(self)] = copied
        return copied

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=self.device)

    def __getitem__(self, index: Any) -> Tensor:
        places = (
            index if isinstance(index, tuple) else (index,)
        )  # a list becomes a tensor on the device, as it does there
        there = [torch.tensor(place, device=self.device) if isinstance(place, list) else place for place in places]
        return super().__getitem__(tuple(there))

    def tolist(self) -> Any:
        return self.cpu().tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation as the device would do it."""
    check(func, args, kwargs)
    given = {id(t.inner): t for t in tree_iter((args, kwargs)) if isinstance(t, PretendTensor)}
    target = kwargs.get("device")
    lands_on_cpu = target is not None and torch.device(target).type == "cpu"
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    note(func, args, kwargs, lands_on_cpu)
    kwargs.pop("pin_memory", None)
    made = func(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs))
    if func is aten.copy_.default and not isinstance(args[0], PretendTensor):
        return args[0]
    return made if lands_on_cpu else tree_map(lambda t: wrapped(t, given), made)


def unwrapped(thing: Any) -> Any:
    return thing.inner if isinstance(thing, PretendTensor) else thing


def wrapped(thing: Any, given: dict[int, PretendTensor]) -> Any:
    """The tensor as one of the device; one that was changed in its place is the one that was given."""
    if not isinstance(thing, Tensor):
        return thing
    if id(thing) in given:
        same = given[id(thing)]
        if (same.shape, same.stride()) != (thing.shape, thing.stride()):
            same.data = PretendTensor(thing)  # as squeeze_() does
        return same
    if thing.dtype in (torch.float64, torch.complex128) and not Rules.float64:
        raise TypeError("Cannot convert a tensor to float64: this device has none.")
    return PretendTensor(thing)


def check(func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Refuse what a GPU refuses."""
    for thing in tree_iter((args, kwargs)):
        if isinstance(thing, torch.Generator) and thing.device.type == "cpu":
            raise MixedDevices(f"{func}: expected a generator of the device, but found one of the CPU.")
    if func in COPIES:
        return
    if func in TAKES_CPU_INDICES:
        tensors = [args[0], *args[2:3]]
        if not isinstance(args[0], PretendTensor) and any(isinstance(index, PretendTensor) for index in args[1]):
            raise MixedDevices(f"{func}: indices should be on the CPU, as the tensor is.")
    else:
        tensors = [t for t in tree_iter((args, kwargs)) if isinstance(t, Tensor)]
    strangers = [t for t in tensors if isinstance(t, Tensor) and not isinstance(t, PretendTensor)]
    if strangers and len(strangers) < len(tensors):
        elementwise = torch.Tag.pointwise in func.tags or func in TAKES_CPU_INDICES
        changed = func._schema.is_mutable and not isinstance(args[0], PretendTensor)
        if changed or not elementwise or any(t.ndim for t in strangers):
            shapes = [tuple(t.shape) for t in strangers]
            raise MixedDevices(f"{func}: expected all tensors on one device, but {shapes} are on the CPU.")


def note(func: Any, args: Any, kwargs: dict[str, Any], lands_on_cpu: bool) -> None:
    """Count what makes the CPU wait for a GPU."""
    if Rules.reads is None:
        return
    sends, waits = False, func in WAITS or torch.Tag.dynamic_output_shape in func.tags or lands_on_cpu
    if func in TAKES_CPU_INDICES:
        waits = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
        if any(isinstance(index, Tensor) and not isinstance(index, PretendTensor) for index in args[1]):
            sends = True
    if func is aten.copy_.default:
        waits = not isinstance(args[0], PretendTensor) and args[1].numel() > 0
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        sends = not isinstance(args[1], PretendTensor) and not non_blocking and args[1].numel() > 0
    if not (waits or sends):
        return
    with Rules.lock:
        Rules.reads[f"{func} in {caller()}"] += int(waits)
        Rules.sends[f"{func} in {caller()}"] += int(sends)


def caller() -> str:
    """The line of the project that asked for the operation, innermost."""
    for frame in reversed(traceback.extract_stack()):
        if "/efcil/" in frame.filename:
            return f"{frame.filename.partition('/efcil/')[2]}:{frame.lineno}"
    return "the test"


@contextmanager
def waits_counted() -> Iterator[tuple[Counter[str], Counter[str]]]:
    """How often, and where, the CPU would have to wait: for numbers of the device, and until its own are copied there.

    Only the first kind waits until the device has done all that it was told.
    """
    Rules.reads, Rules.sends = counted = Counter(), Counter()
    try:
        yield counted
    finally:
        Rules.reads = None


@contextmanager
def without_float64() -> Iterator[None]:
    """The device as Apple's, which has no float64."""
    Rules.float64 = False
    try:
        yield
    finally:
        Rules.float64 = True


class Module(_DummyBackendModule):
    """What torch.get_device_module() gives for the device."""

    def synchronize(self, device: Any = None) -> None: ...

    def manual_seed(self, seed: int) -> None: ...

    # Random numbers are the CPU's; torch asks whenever it keeps or restores those of every device.
    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.empty(0)

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None: ...


def register() -> tuple[torch.library.Library, torch.library.Library]:
    """Make the device known to torch; once in a process, and before its first backward pass."""
    _setup_privateuseone_for_python_backend("pretend", backend_module=Module())
    everything, factories = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    everything.fallback(lambda func, *args, **kwargs: computed(func, args, kwargs), "PrivateUse1")
    for func in FACTORIES:  # torch makes these of an empty tensor that grows
        factories.impl(func, partial(factory, func), "PrivateUse1")
    return everything, factories


def factory(func: Any, *args: Any, **kwargs: Any) -> Any:
    return computed(func, args, kwargs)


def on_any_device(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.tensor() for the device too: it copies where operations of Python cannot be reached."""

    def made(data: Any, *, device: Any = None, **others: Any) -> Tensor:
        if device is None or torch.device(device).type != "pretend":
            return make(data, **others) if device is None else make(data, device=device, **others)
        return make(data, **others).to(device)

    return made


LIBRARIES = register()
torch.tensor = on_any_device(torch.tensor)
