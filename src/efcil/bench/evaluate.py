"""Accuracy on every task seen so far, from one pass over their test images."""

from __future__ import annotations

import numpy as np

from efcil.classifier import IncrementalClassifier
from efcil.data.stream import Stream


def accuracy_per_task(classifier: IncrementalClassifier, stream: Stream, tasks: int) -> list[float]:
    """Percent of test images of each of the first ``tasks`` tasks that are classified correctly among all classes."""
    seen = stream.past(tasks)
    correct = classifier.predict(seen.test) == seen.test_labels
    return [100 * float(np.mean(correct[np.isin(seen.test_labels, split)])) for split in stream.splits[:tasks]]
