"""The process that learns: photos come to it as pixels through a pipe, and it ends with the server that started it.

    server                          learner
    the lesson, then its pixels  →
                                 ←  progress, …
                                 ←  "learnt" with the report; nothing is written yet
    "save" once that is noted    →
                                 ←  "saved"

Whatever ends the server closes the pipe, and the learner then ends at once: a lesson that nobody has noted as learnt is
never saved.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from efcil.engine.progress import PLAIN, Step
from efcil.errors import UserError

Progress = Callable[[dict[str, Any]], None]
ENDED = "The process that learnt this lesson ended (exit code {code}); the model is as it was before it."
OFTEN = 0.1  # seconds between two words on progress
NICENESS = 5  # predictions go first, and yet a lesson gets on where others work too


class Learner:
    """The server's side: starts the process when it is needed, talks to it, and ends it."""

    def __init__(self) -> None:
        self.process: Any = None
        self._pipe: Connection | None = None
        self._ended = False

    def teach(
        self, lesson: dict[str, Any], pixels: npt.NDArray[np.uint8], progress: Progress, learnt: Progress
    ) -> None:
        """One lesson, from sending its photos to the saved model; blocks. ``learnt`` is called before it is saved."""
        pipe = self._started()
        try:
            send(pipe, {**lesson, "shape": pixels.shape})
            pipe.send_bytes(np.ascontiguousarray(pixels).data.cast("B"))
            del pixels
            while True:
                said = receive(pipe)
                if "progress" in said:
                    progress(said["progress"])
                elif "learnt" in said:
                    learnt(said["learnt"])
                    send(pipe, {"save": True})
                elif "error" in said:
                    raise UserError(said["error"])
                else:
                    return
        except (EOFError, OSError):
            code = self._gone()
            raise UserError(ENDED.format(code=code)) from None

    def _started(self) -> Connection:
        if self._ended:
            raise UserError("The server is stopping.")
        if self._pipe is None or not self.process.is_alive():
            context = multiprocessing.get_context("spawn")  # a fork would copy threads of the server half-way
            self._pipe, other = context.Pipe()
            self.process = context.Process(target=learn_lessons, args=(other,), name="efcil-learner", daemon=True)
            self.process.start()
            other.close()
            if self._ended:  # while it was being started
                self.process.kill()
        return self._pipe

    def _gone(self) -> int | None:
        self.process.join(5)
        code: int | None = self.process.exitcode
        if self._pipe is not None:
            self._pipe.close()
        self._pipe = None
        return code

    def end(self) -> None:
        """End the process, whatever it does; what is not saved is lost."""
        self._ended = True
        if self.process is not None and self.process.is_alive():
            self.process.kill()


def send(pipe: Connection, message: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(message).encode())


def receive(pipe: Connection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(pipe.recv_bytes())
    return message


# The learner's side


def learn_lessons(pipe: Connection) -> None:
    """Learn lesson after lesson until the server is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server decides what it means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(NICENESS)
    heard: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=listen, args=(pipe, heard), daemon=True).start()
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 4))
    while True:
        lesson = json.loads(heard.get())
        pixels = np.frombuffer(heard.get(), dtype=np.uint8).reshape(lesson["shape"])
        try:
            learn(lesson, pixels, pipe, heard)
        except UserError as error:
            send(pipe, {"error": str(error)})
        except Exception as error:  # whatever it is, the server and the next lesson go on
            said = " ".join(str(error).split())[:200] or type(error).__name__
            send(pipe, {"error": f"The lesson failed ({said}); the model is as it was before it."})
        del pixels


def listen(pipe: Connection, heard: queue.Queue[bytes]) -> None:
    """Take what the server says; when it is gone there is nobody to learn for."""
    while True:
        try:
            heard.put(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)


def learn(lesson: dict[str, Any], pixels: npt.NDArray[np.uint8], pipe: Connection, heard: queue.Queue[bytes]) -> None:
    """One lesson as `efcil learn` has it, with the photos that were sent."""
    import torch

    from efcil.data.images import ImageSet, Pixels
    from efcil.teaching.lesson import taught
    from efcil.teaching.new import new_classifier
    from efcil.teaching.photos import Photos
    from efcil.teaching.store import Store

    store = Store(Path(lesson["model"]))
    images = ImageSet(Pixels(torch.from_numpy(pixels.copy())))
    photos = Photos(images, np.array(lesson["names"], dtype=np.str_), [""] * len(lesson["names"]))
    with store.changing():
        classifier = store.load() if store.exists else new_classifier(**lesson["choices"])
        classifier.watcher = Teller(pipe)
        report = taught(classifier, photos)
        place = len(classifier.lessons_) - 1
        send(pipe, {"learnt": {"report": report.to_dict(), "place": place}})
        heard.get()
        store.replace(classifier)
    send(pipe, {"saved": True})


class Teller:
    """Tells the server how far a lesson is, not too often."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.time = 0.0
        self.name = ""

    def step(self, step: Step) -> None:
        self.tell("learning", step.epoch, step.epochs)

    def epoch(self, step: Step) -> None:
        self.tell("learning", step.epoch + 1, step.epochs)

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        self.tell(PLAIN.get(name, name), done, total)

    def tell(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage == self.name and now - self.time < OFTEN and done < total:
            return
        self.time, self.name = now, stage
        send(self.pipe, {"progress": {"stage": stage, "done": done, "total": total}})
