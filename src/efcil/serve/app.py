"""The HTTP API and the page: each route is a few lines over a model in memory, a queue of lessons and a store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import torch
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as AnyHTTPException

from efcil import __version__
from efcil.classifier import IncrementalClassifier
from efcil.errors import TooLarge, UserError, WrongType, unknown
from efcil.serve import schemas
from efcil.serve.batching import MOST, WINDOW, Batcher
from efcil.serve.guard import Door, Guard
from efcil.serve.jobs import Jobs, Lesson, Taught
from efcil.serve.lessons import School
from efcil.serve.limits import Budget, Limits
from efcil.serve.metrics import Metrics
from efcil.serve.names import class_name
from efcil.serve.served import Served
from efcil.serve.uploads import Uploads, read_form, zipped
from efcil.teaching.answers import class_rows, told_of
from efcil.teaching.store import Store
from efcil.teaching.undone import AfterForgetting

PAGE = Path(__file__).parent / "page"
STILL_HERE = 15.0  # seconds between two signs of life of a stream of events
PIECE = 1 << 20  # bytes of a model that are sent at once
DECODERS = 2  # photos that are decoded at the same time
T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What a server is made with."""

    model: Path
    choices: dict[str, Any] = field(default_factory=dict)  # of a new model: method, backbone, tune, changes
    limits: Limits = field(default_factory=Limits)
    door: Door = field(default_factory=Door)
    window: float = WINDOW
    most: int = MOST


class Desk:
    """Everything that the routes need, made when the server starts."""

    def __init__(self, settings: Settings) -> None:
        self.limits = settings.limits
        self.store = Store(settings.model)
        self.budget = Budget(int(settings.limits.memory_mb * (1 << 20)))
        self.metrics = Metrics()
        self.served = Served(self.store, settings.choices)
        self.jobs = Jobs(self.store.path)
        self.school = School(self.served, self.jobs, settings.limits, self.budget)
        self.batcher = Batcher(settings.window, settings.most, self.metrics.batched)
        self.decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decoder")

    async def start(self) -> None:
        await self.served.reload()
        classifier = self.served.classifier
        self.jobs.read([] if classifier is None else classifier.lessons_)

    def model(self) -> IncrementalClassifier:
        """The model that answers now."""
        self.served.refresh()
        if self.served.classifier is None:
            raise HTTPException(409, "The model knows no class yet; teach it one first.")
        return self.served.classifier

    async def decoded(self, files: Any) -> torch.Tensor:
        """The pixels of photos, which count as memory while they are held here."""
        pixels = torch.empty(len(files), 3, files.size, files.size, dtype=torch.uint8)
        loop = asyncio.get_running_loop()
        for rows in torch.arange(len(files)).split(8):  # threads that are waited for no longer count as busy, too
            pixels[rows] = await loop.run_in_executor(self.decoders, files.read, rows)
        return pixels

    @contextlib.contextmanager
    def holding(self, photos: int, size: int) -> Any:
        count = 3 * size * size * photos
        if not self.budget.take(count):
            raise HTTPException(429, "The photos of other requests fill the memory; try again in a moment.")
        try:
            yield
        finally:
            self.budget.give(count)

    async def change(self, action: Callable[[], T], noted: Callable[[Taught, Taught], None]) -> T:
        """Change the model while no lesson does, and note it in the list of lessons.

        What has begun is brought to its end, even if the request takes too long and nobody waits for the answer.
        """
        if self.school.learning or self.school.changing.locked():
            raise HTTPException(409, "A lesson is under way or waiting; try again when it is done.")
        await self.school.changing.acquire()  # it is free, so nobody else comes between
        changed = self.changed = asyncio.create_task(self._changed(action, noted))
        return await asyncio.shield(changed)

    async def _changed(self, action: Callable[[], T], noted: Callable[[Taught, Taught], None]) -> T:
        try:
            before = self.taught()
            try:
                done = await asyncio.to_thread(self._locked, action)
            except AfterForgetting:  # has an answer of its own
                raise
            except UserError as error:
                raise HTTPException(409, str(error)) from None
            finally:
                await self.served.reload()
            noted(before, self.taught())
            return done
        finally:
            self.school.changing.release()

    def _locked(self, action: Callable[[], T]) -> T:
        with self.store.changing():
            return action()

    def classes(self) -> list[dict[str, Any]]:
        return [] if self.served.classifier is None else class_rows(self.served.classifier)

    def taught(self) -> Taught:
        """What the model in memory has had."""
        classifier = self.served.classifier
        return (
            Taught([], []) if classifier is None else Taught(list(map(str, classifier.classes_)), classifier.lessons_)
        )

    def known(self, name: str) -> IncrementalClassifier:
        """The model, if it has a class of this name."""
        classifier = self.served.classifier
        names = [] if classifier is None else [str(known) for known in classifier.classes_]
        if classifier is None or name not in names:
            sentence = str(unknown("class", name[:100], names)) if names else "The model knows no class yet."
            raise HTTPException(404, sentence)
        return classifier


def build_app(settings: Settings) -> Guard:
    """The application; everything in it begins with its start and ends with its stop."""
    desk = Desk(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await desk.start()
        tasks = [asyncio.create_task(desk.batcher.run()), asyncio.create_task(desk.school.run())]
        try:
            yield
        finally:
            await desk.school.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            desk.batcher.close()
            desk.served.close()
            desk.decoders.shutdown(wait=False)

    app = FastAPI(
        title="efcil",
        version=__version__,
        description="A classifier of photos that is taught new classes over time and keeps no photo.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    add_routes(app, desk)
    add_errors(app)
    return Guard(app, settings.door, settings.limits, desk.budget, desk.metrics.request, desk.school.stop)


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The answers that any route may give when something is wrong, and these."""
    return {code: {"model": schemas.Problem} for code in (400, 401, 403, 408, 413, 429, *codes)}


def add_routes(app: FastAPI, desk: Desk) -> None:
    limits = desk.limits

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/page", StaticFiles(directory=PAGE), name="page")

    @app.post(
        "/predict", openapi_extra=schemas.ASK, responses=problems(409, 415, 422) | {200: {"model": schemas.Answers}}
    )
    async def predict(request: Request) -> JSONResponse:
        """Say what is on photos; one that is unlike every class is called unknown."""
        with contextlib.ExitStack() as coming:
            coming.enter_context(desk.batcher.expected())
            form = await read_form(request, limits, words=(), files=("images",))
            photos = form.files.get("images", [])
            if not photos:
                raise UserError("There is no photo; send files in the field images.")
            classifier = desk.model()
            size, interpolation = desk.served.sight()
            with desk.holding(len(photos), size):
                pixels = await desk.decoded(Uploads(photos, size, interpolation, limits.bounds))
                coming.close()
                answers = await desk.batcher.answers(classifier, pixels)
        names = [name for name, _ in photos]
        rows = told_of(classifier, answers, names, len(classifier.classes_), True)
        return JSONResponse({"answers": rows})

    @app.post(
        "/lessons",
        status_code=202,
        openapi_extra=schemas.TEACH,
        responses=problems(409, 415, 422) | {202: {"model": schemas.Lesson}},
    )
    async def teach(request: Request) -> JSONResponse:
        """Teach photos of one class, or a zip of class folders; a class that is known gets to know more of itself."""
        form = await read_form(request, limits, words=("name",), files=("images", "archive"))
        archives, photos = form.files.get("archive", []), form.files.get("images", [])
        if len(archives) + bool(photos or "name" in form.words) != 1 or (photos and "name" not in form.words):
            raise UserError("Send either the fields name and images, or one zip of class folders in archive.")
        size, interpolation = await asyncio.to_thread(desk.served.sight)
        files: Any
        if archives:
            files, given = await asyncio.to_thread(zipped, archives[0][1], size, interpolation, limits)
            names = [class_name(name, limits.name_characters) for name in given]
        else:
            name = class_name(form.words["name"], limits.name_characters)
            if not photos:
                raise UserError("There is no photo; send files in the field images.")
            files = Uploads(photos, size, interpolation, limits.bounds)
            names = [name] * len(photos)
        with desk.holding(len(names), size):
            pixels = await desk.decoded(files)
        lesson = desk.school.add(names, pixels.numpy())
        return JSONResponse(lesson.to_dict(), 202, {"Location": f"/lessons/{lesson.id}"})

    @app.get("/lessons", responses=problems() | {200: {"model": schemas.Lessons}})
    async def lessons() -> JSONResponse:
        """All lessons, those of earlier runs of the server too, oldest first."""
        return JSONResponse({"lessons": [lesson.to_dict() for lesson in desk.jobs.lessons]})

    @app.get(
        "/lessons/{id}",
        responses=problems(404) | {200: {"model": schemas.Lesson, "content": {"text/event-stream": {}}}},
    )
    async def lesson(id: str, request: Request) -> Response:
        """How far a lesson is; asked for text/event-stream, every step of it until it has ended."""
        found = desk.jobs.find(id)
        if found is None:
            raise HTTPException(404, f"There is no lesson {id[:40]!r}; GET /lessons lists all.")
        if "text/event-stream" not in request.headers.get("accept", ""):
            return JSONResponse(found.to_dict())
        return StreamingResponse(events(desk.jobs, found), media_type="text/event-stream")

    @app.get("/classes", responses=problems() | {200: {"model": schemas.Classes}})
    async def classes() -> JSONResponse:
        """What the model knows."""
        desk.served.refresh()
        return JSONResponse({"classes": desk.classes()})

    @app.patch("/classes/{name:path}", responses=problems(404, 409, 415, 422) | {200: {"model": schemas.Classes}})
    async def rename(name: str, body: schemas.NewName) -> JSONResponse:
        """Call a class by another name."""
        desk.known(name)
        new = class_name(body.name, limits.name_characters)
        action = partial(renamed, desk.store, name, new)
        await desk.change(action, lambda before, after: desk.jobs.rename(name, new))
        return JSONResponse({"classes": desk.classes()})

    @app.delete("/classes/{name:path}", responses=problems(404, 409, 422) | {200: {"model": schemas.Classes}})
    async def forget(name: str) -> JSONResponse:
        """Forget a class, in the model, in every version of it and in the list of lessons; this cannot be undone."""
        desk.known(name)
        await desk.change(partial(desk.store.forget, name), lambda before, after: desk.jobs.forget(name))
        return JSONResponse({"classes": desk.classes()})

    @app.post(
        "/undo",
        responses=problems(422) | {200: {"model": schemas.Undone}, 409: {"model": schemas.UndoProblem}},
    )
    async def undo(further: bool = False) -> JSONResponse:
        """Take the last lesson or renaming back; beyond a class that was forgotten only when that is wished."""
        desk.model()
        lost = await desk.change(partial(desk.store.undo, further), desk.jobs.undo)
        return JSONResponse({"classes": desk.classes(), "taken_back": lost})

    @app.get("/model", responses=problems(404) | {200: {"content": {"application/octet-stream": {}}}})
    async def model() -> StreamingResponse:
        """The model as a file."""
        try:
            file = open(desk.store.path, "rb")  # noqa: SIM115 (it is open while it is sent)
        except OSError:
            raise HTTPException(404, "There is no model yet; teach it a class first.") from None
        headers = {
            "Content-Length": str(os.fstat(file.fileno()).st_size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(desk.store.path.name)}",
        }
        return StreamingResponse(pieces(file), media_type="application/octet-stream", headers=headers)

    @app.get("/healthz", responses=problems() | {200: {"model": schemas.Health}})
    async def healthz(request: Request) -> JSONResponse:
        """Whether the server is there, and to whom has the token what it does."""
        if not request.state.known:
            return JSONResponse({"status": "ok"})
        classes, name = len(desk.classes()), desk.store.path.name
        return JSONResponse({"status": "ok", "classes": classes, "learning": desk.school.learning, "model": name})

    @app.get("/metrics", responses=problems() | {200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters for Prometheus."""
        measured = desk.metrics
        measured.classes.set(len(desk.classes()))
        measured.held.set(desk.budget.taken)
        for status in ("waiting", "running", "done", "failed", "lost"):
            count = sum(lesson.status == status for lesson in desk.jobs.lessons)
            measured.lessons.labels(status).set(count)
        return Response(measured.text(), media_type="text/plain; version=0.0.4")


def renamed(store: Store, name: str, new: str) -> None:
    classifier = store.load()
    if new in map(str, classifier.classes_):
        raise UserError(f"{new!r} is the name of a class already; choose another.")
    store.replace(classifier.rename(name, new))


async def events(jobs: Jobs, lesson: Lesson) -> AsyncIterator[str]:
    """Every state of a lesson that differs from the one before, until it has ended."""
    last = ""
    while True:
        now = json.dumps(lesson.to_dict())
        if now != last:
            yield f"data: {now}\n\n"
            last = now
        if lesson.ended:
            return
        if not await jobs.changed(STILL_HERE):
            yield ": still here\n\n"


async def pieces(file: Any) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece


def add_errors(app: FastAPI) -> None:
    """Whatever is refused is one sentence."""

    def problem(sentence: str, status: int, headers: dict[str, str] | None = None) -> JSONResponse:
        whole = sentence.encode(errors="replace").decode()  # half a character can be quoted from a request
        return JSONResponse({"detail": whole}, status, headers)

    @app.exception_handler(UserError)
    async def user_error(request: Request, error: UserError) -> JSONResponse:
        status = 413 if isinstance(error, TooLarge) else 415 if isinstance(error, WrongType) else 422
        return problem(str(error), status)

    @app.exception_handler(AfterForgetting)
    async def after_forgetting(request: Request, error: AfterForgetting) -> JSONResponse:
        told = "The last change was forgetting a class, which cannot be undone"
        sentence = f"{told}; POST /undo?further=true goes back beyond it, which takes back {error.lost}."
        return JSONResponse({"detail": sentence, "takes_back": error.lost}, 409)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = " ".join(str(part) for part in first["loc"] if part != "body")[:80]
        sentence = f"The request is not as it should be: {where or 'its body'}: {first['msg']}."
        return problem(sentence, 422)

    @app.exception_handler(AnyHTTPException)
    async def refused(request: Request, error: AnyHTTPException) -> JSONResponse:
        sentence = {
            (404, "Not Found"): "There is nothing at this address; GET /openapi.json lists what there is.",
            (400, "There was an error parsing the body"): "The body cannot be read as JSON; send it anew.",
            (405, "Method Not Allowed"): f"This address does not take {request.method[:10]}.",
        }.get((error.status_code, error.detail), error.detail)
        return problem(sentence, error.status_code, dict(error.headers or {}))
