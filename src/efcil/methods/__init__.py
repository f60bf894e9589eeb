"""The methods by name; each is one file that holds only what is its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from efcil.config import from_dict
from efcil.engine.method import Method
from efcil.errors import unknown
from efcil.methods.abd import ABD
from efcil.methods.acil import ACIL
from efcil.methods.adagauss import AdaGauss
from efcil.methods.adc import ADC
from efcil.methods.apr import APR
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
from efcil.methods.il2a import IL2A
from efcil.methods.joint import Joint
from efcil.methods.ldc import LDC
from efcil.methods.lfl import LfL
from efcil.methods.lwf import LwF
from efcil.methods.mas import MAS
from efcil.methods.pass_ import PASS
from efcil.methods.r_dfcil import RDFCIL
from efcil.methods.rwalk import RWalk
from efcil.methods.sdc import SDC
from efcil.methods.si import SI
from efcil.methods.ssre import SSRE

METHODS: dict[str, type[Method]] = {
    cls.name: cls
    for cls in (
        *(EFCPlusPlus, EFC, FineTune, Freeze, Joint, SDC, ACIL, DSAL, FeCAM, FeTrIL),
        *(LwF, EWC, MAS, SI, RWalk, LfL),
        *(PASS, IL2A, SSRE, Fusion),
        *(ABD, RDFCIL),
        *(LDC, DPCR, ADC, AdaGauss, APR),
    )
}


def method_class(name: str) -> type[Method]:
    """The class of this method."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def build_method(name: str, options: Mapping[str, Any]) -> Method:
    """A method with its options checked."""
    cls = method_class(name)
    return cls(from_dict(cls.Options, options, "options."))


def available_methods() -> list[str]:
    """Names of all methods."""
    return list(METHODS)
