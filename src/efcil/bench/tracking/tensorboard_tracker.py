"""TensorBoard: events in the run's own folder; ``tensorboard --logdir runs`` shows them."""

from __future__ import annotations

from collections.abc import Mapping

import yaml
from torch.utils.tensorboard import SummaryWriter

from efcil.bench.tracking import About


class TensorBoardTracker:
    def __init__(self, about: About) -> None:
        folder = about.folder / "tensorboard"
        self.new = not folder.exists()
        self.events = SummaryWriter(str(folder))
        if self.new:
            settings = yaml.safe_dump(dict(about.settings), sort_keys=False)
            title = f"{about.method} on {about.preset}, seed {about.seed}"
            self.events.add_text("config", f"{title}\n\n" + "".join(f"    {line}\n" for line in settings.splitlines()))

    def losses(self, task: int, epoch: int, losses: Mapping[str, float]) -> None:
        for name, value in losses.items():
            self.events.add_scalar(f"loss/task{task}/{name}", value, epoch)

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.events.add_scalar(f"metrics/{name}", value, step)

    def close(self, finished: bool) -> None:
        self.events.close()


def open_tracker(about: About) -> TensorBoardTracker:
    return TensorBoardTracker(about)
