"""What is on these photos? Needs a file of `efcil export`, onnxruntime, Pillow and numpy; no efcil, no PyTorch.

python examples/onnx_predict.py things.onnx photo.jpg another.png
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

if len(sys.argv) < 3:
    sys.exit(__doc__)
session = onnxruntime.InferenceSession(sys.argv[1])
about = session.get_modelmeta().custom_metadata_map
classes, side = json.loads(about["classes"]), int(about["image_size"])
names = [output.name for output in session.get_outputs()]

for path in sys.argv[2:]:
    photo = Image.open(path)
    photo.draft("RGB", (side, side))  # large JPEG files are read at a fraction of their size
    upright = ImageOps.exif_transpose(photo).convert("RGB")
    square = ImageOps.fit(upright, (side, side), Image.Resampling[about["interpolation"].upper()])
    answers = dict(zip(names, session.run(names, {"images": np.array(square)[None]}), strict=True))
    probabilities = answers["probabilities"][0]
    best = probabilities.argmax()
    unknown = "unknown" in answers and answers["unknown"][0]  # unlike every class; not every method can tell
    print(f"{path}: {'unknown, at best ' if unknown else ''}{classes[best]} {probabilities[best]:.4f}")
