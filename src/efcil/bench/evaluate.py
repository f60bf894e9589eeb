"""How the test images of every task seen so far are classified, from one pass over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from efcil.classifier import IncrementalClassifier
from efcil.data.stream import Stream
from efcil.engine.distributed import together


@dataclass(frozen=True)
class Evaluation:
    """The true and the predicted class of each test image, and the classes of each task in the order of learning."""

    true: npt.NDArray[Any]  # (N,)
    predicted: npt.NDArray[Any]  # (N,)
    splits: Sequence[Sequence[str]]

    @property
    def accuracy_per_task(self) -> list[float]:
        """Percent of the test images of each task that are classified correctly among all classes."""
        correct = self.true == self.predicted
        return [100 * float(np.mean(correct[np.isin(self.true, split)])) for split in self.splits]

    @property
    def confusion_matrix(self) -> list[list[int]]:
        """How many images of each true class (row) were taken for each class (column), in the order of learning."""
        order = np.array([name for split in self.splits for name in split])
        by_name = order.argsort()
        rows, columns = (by_name[np.searchsorted(order[by_name], names)] for names in (self.true, self.predicted))
        counts = np.zeros((len(order), len(order)), dtype=np.int64)
        np.add.at(counts, (rows, columns), 1)
        return counts.tolist()


def evaluate(classifier: IncrementalClassifier, stream: Stream, tasks: int) -> Evaluation:
    """The test images of the first ``tasks`` tasks as this classifier sees them."""
    seen = stream.past(tasks)
    with together():
        return Evaluation(seen.test_labels, classifier.predict(seen.test), stream.splits[:tasks])
