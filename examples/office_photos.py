"""Teach a model real photos in lessons of two classes, and look at it from all sides.

    python examples/office_photos.py DIR        # DIR holds one folder per class, such as office/amazon

Every step prints what it shows. Cells begin with # %%, so editors and notebooks can run it step by step.
"""

# %% The photos: some of each class to teach, some to test, and the last classes never taught
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from efcil import IncrementalClassifier

folder = Path(sys.argv[1])
most = int(sys.argv[2]) if len(sys.argv) > 2 else 20  # photos of each class
classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
photos = {name: sorted((folder / name).iterdir()) for name in classes}
taught = {name: paths[:most] for name, paths in photos.items()}
tested = {name: paths[most : 2 * most] for name, paths in photos.items()}
known, strangers = classes[:-2], classes[-2:]
print(f"{len(known)} classes to teach, {len(strangers)} that are never taught: {', '.join(strangers)}")

# %% Lessons: two new classes at a time, the earlier photos never seen again
classifier = IncrementalClassifier(method="lda", backbone="efficientnet-lite0")
for place in range(0, len(known), 2):
    lesson = known[place : place + 2]
    paths = [path for name in lesson for path in taught[name]]
    classifier.partial_fit(paths, [path.parent.name for path in paths])
    true, said = classifier.validation()
    print(f"taught {' and '.join(lesson)}: leave-one-out accuracy {np.mean(true == said):.0%}")
print(classifier)

# %% How good is it on photos that it has not seen?
paths = [path for name in known for path in tested[name]]
names = [path.parent.name for path in paths]
print(f"accuracy on {len(paths)} other photos: {classifier.score(paths, names):.1%}")

# %% Does it know what it does not know?
foreign = [path for name in strangers for path in tested[name]]
for what, group in (("taught", paths), ("never taught", foreign)):
    answers = classifier.predict(group, unknown=True)
    print(f"photos of {what} classes called unknown: {np.mean(answers == 'unknown'):.0%}")

# %% Change your mind: forget a class; the file says nothing of it any more
classifier.forget(known[0])
classifier.save("things.efcil")
print(f"{known[0]} forgotten; things.efcil has {Path('things.efcil').stat().st_size / 1e6:.1f} MB and no image inside")
