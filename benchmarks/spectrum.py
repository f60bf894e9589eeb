"""The eigenvalues ν of the Empirical Feature Matrix that finished runs of efc++ or efc ended with (§8.3, Fig. 10).

    python benchmarks/spectrum.py runs/cifar100-cold10-cpu_efc++_seed*

λ pays where λ ν is above η: there the EFM, and not the isotropic part, decides how stiff a direction is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from efcil import IncrementalClassifier
from efcil.engine.numerics import above_rounding
from efcil.paper.efm import spectrum
from efcil.parts.consolidation import Consolidating

if __name__ == "__main__":
    print("| run | features | non-zero ν | mean ν | median ν | greatest ν | share with λν > η |\n|---|" + "---:|" * 6)
    for folder in map(Path, sys.argv[1:]):
        method = IncrementalClassifier.load(folder / "state.efcil")._method
        assert isinstance(method, Consolidating), f"{folder} has no Empirical Feature Matrix"
        values, _ = spectrum(method.memory.efm)
        values = values[above_rounding(values, method.memory.efm.dtype)]
        stiff = (method.options.lambda_efm * values > method.options.eta).double().mean()
        numbers = [f"{value:.3f}" for value in (values.mean(), values.median(), values[0])]
        print(
            "|", " | ".join([folder.name, str(len(method.memory.efm)), str(len(values)), *numbers, f"{stiff:.2f}"]), "|"
        )
