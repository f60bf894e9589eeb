"""The methods by name; each is one file that holds only what is its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from efcil.config import from_dict
from efcil.engine.method import Method
from efcil.errors import UserError, unknown
from efcil.methods.abd import ABD
from efcil.methods.acil import ACIL
from efcil.methods.adagauss import AdaGauss
from efcil.methods.adc import ADC
from efcil.methods.apr import APR
from efcil.methods.bicyc import BiCyc
from efcil.methods.cargo import Cargo
from efcil.methods.ceos_acb import CEOSACB
from efcil.methods.dpcr import DPCR
from efcil.methods.ds_al import DSAL
from efcil.methods.efc import EFC
from efcil.methods.efc_plus_plus import EFCPlusPlus
from efcil.methods.ewc import EWC
from efcil.methods.fecam import FeCAM
from efcil.methods.fetril import FeTrIL
from efcil.methods.finetune import FineTune
from efcil.methods.freeze import Freeze
from efcil.methods.fusion import Fusion
from efcil.methods.gatf import GATF
from efcil.methods.il2a import IL2A
from efcil.methods.joint import Joint
from efcil.methods.lda import LDA
from efcil.methods.ldc import LDC
from efcil.methods.lfl import LfL
from efcil.methods.lwf import LwF
from efcil.methods.mas import MAS
from efcil.methods.pass_ import PASS
from efcil.methods.r_dfcil import RDFCIL
from efcil.methods.ranpac import RanPAC
from efcil.methods.rwalk import RWalk
from efcil.methods.sdc import SDC
from efcil.methods.si import SI
from efcil.methods.ssre import SSRE

METHODS: dict[str, type[Method]] = {
    cls.name: cls
    for cls in (
        *(Cargo, EFCPlusPlus, EFC, CEOSACB, FineTune, Freeze, Joint, SDC, ACIL, DSAL, FeCAM, FeTrIL),
        *(LDA, RanPAC),
        *(LwF, EWC, MAS, SI, RWalk, LfL),
        *(PASS, IL2A, SSRE, Fusion),
        *(ABD, RDFCIL),
        *(LDC, DPCR, ADC, AdaGauss, BiCyc, GATF, APR),
    )
}


OUTSIDE = "efcil.methods"  # the group of entry points by which other packages add methods


def method_class(name: str) -> type[Method]:
    """The class of this method: one of the package, an entry point of another package, or ``module:Class``."""
    if name in METHODS:
        return METHODS[name]
    added = outside_methods()
    if name in added:
        return _imported(name, added[name])
    if ":" in name:
        return _imported(name, EntryPoint(name, name, OUTSIDE))
    raise unknown("method", name, available_methods())


def outside_methods() -> dict[str, EntryPoint]:
    """Methods that other packages add, not yet imported; a name that the package itself has is not theirs to take."""
    return {entry.name: entry for entry in entry_points(group=OUTSIDE) if entry.name not in METHODS}


def _imported(name: str, entry: EntryPoint) -> type[Method]:
    """The class behind ``module:Class``; whatever goes wrong in a module of somebody else is one sentence."""
    if not all(part.isidentifier() for part in re.split("[.:]", entry.value)) or entry.value.count(":") != 1:
        raise UserError(f"The method {name!r} must be a name from `efcil methods`, or module:Class.")
    if "" not in sys.path:
        sys.path.append("")  # the current folder, where `python -m efcil` looks and the script `efcil` does not
    try:
        module = import_module(entry.module)
    except Exception as error:
        raise UserError(
            f"The method {name!r} cannot be loaded ({type(error).__name__}: {' '.join(str(error).split())}); "
            "install its package, go to its folder, or put that on PYTHONPATH."
        ) from None
    if not hasattr(module, entry.attr):
        there = {own: kind for own, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, Method)}
        raise unknown(f"method in the module {entry.module}", entry.attr, there.keys() - {"Method"})
    cls = getattr(module, entry.attr)
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise UserError(f"The method {name!r} is not a subclass of efcil.engine.method.Method.")
    missing = [attribute for attribute in ("name", "year", "idea") if not hasattr(cls, attribute)]
    if missing:
        raise UserError(
            f"The method {name!r} does not say its {' and '.join(missing)}; add what is missing to its class."
        )
    return cls


def build_method(name: str, options: Mapping[str, Any]) -> Method:
    """A method with its options checked."""
    cls = method_class(name)
    return cls(from_dict(cls.Options, options, "options."))


def available_methods() -> list[str]:
    """Names of all methods, those that other packages add at the end."""
    return [*METHODS, *sorted(outside_methods())]
