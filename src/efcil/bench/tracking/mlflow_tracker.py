"""MLflow: a run in the store that MLFLOW_TRACKING_URI names, or else in mlflow.db beside the run folders."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from efcil.bench.scenarios import flat
from efcil.bench.tracking import About, known_as, remember
from efcil.engine.locks import locked
from efcil.errors import UserError

AT_ONCE = 100  # parameters that MLflow takes in one call


class MlflowTracker:
    def __init__(self, about: About) -> None:
        for quiet in ("mlflow", "alembic"):  # tables being made are no news
            logging.getLogger(quiet).setLevel(logging.WARNING)
        out = about.folder.parent.absolute()
        store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{out / 'mlflow.db'}"
        try:
            with locked(out / ".mlflow.lock"):  # of many runs one makes the tables and the experiment
                self.client = MlflowClient(tracking_uri=store)
                experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or "efcil")
            identity = known_as(about, "mlflow")
            self.new = identity is None
            self.run = identity or self._begin(about, experiment)
            self.client.set_terminated(self.run, "RUNNING")
        except MlflowException as error:
            raise UserError(f"MLflow cannot use {store}: {' '.join(str(error).split())}") from None

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self.client.create_experiment(name))

    def _begin(self, about: About, experiment: str) -> str:
        tags = {"preset": about.preset, "method": about.method, "seed": str(about.seed)}
        run = str(self.client.create_run(experiment, run_name=about.name, tags=tags).info.run_id)
        settings = [Param(name, str(value)) for name, value in flat(about.settings).items()]
        for first in range(0, len(settings), AT_ONCE):
            self.client.log_batch(run, params=settings[first : first + AT_ONCE])
        remember(about, "mlflow", run)
        return run

    def losses(self, task: int, epoch: int, losses: Mapping[str, float]) -> None:
        self._log(((f"loss/task{task}/{name}", value) for name, value in losses.items()), epoch)

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        self._log(((f"metrics/{name}", value) for name, value in numbers.items()), step)

    def _log(self, values: Iterable[tuple[str, float]], step: int) -> None:
        now = int(time.time() * 1000)
        self.client.log_batch(self.run, metrics=[Metric(name, value, now, step) for name, value in values])

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.run, "FINISHED" if finished else "FAILED")


def open_tracker(about: About) -> MlflowTracker:
    return MlflowTracker(about)
