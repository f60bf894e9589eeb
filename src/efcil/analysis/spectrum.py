"""The eigenvalues ν of the Empirical Feature Matrix that finished runs of efc++ or efc ended with (§8.3, Fig. 10).

λ pays where λ ν is above η: there the EFM, and not the isotropic part, decides how stiff a direction is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from efcil.classifier import IncrementalClassifier
from efcil.engine.numerics import above_rounding
from efcil.errors import UserError
from efcil.paper.efm import spectrum
from efcil.parts.consolidation import Consolidating


def spectrum_row(folder: Path) -> dict[str, Any]:
    """The spectrum of one run in numbers."""
    method = IncrementalClassifier.load(folder / "state.efcil")._method
    if not isinstance(method, Consolidating):
        raise UserError(f"The run in {folder} has no Empirical Feature Matrix; give runs of efc++ or efc.")
    efm, options = method.memory.efm, method.memory.options
    values, _ = spectrum(efm)
    values = values[above_rounding(values, efm.dtype)]
    return {
        "run": folder.name,
        "features": len(efm),
        "non-zero": len(values),
        "mean": float(values.mean()),
        "median": float(values.median()),
        "greatest": float(values[0]),
        "share with λν > η": float((options.lambda_efm * values > options.eta).double().mean()),
    }
