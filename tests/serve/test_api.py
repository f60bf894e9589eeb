"""The calls one by one: what they answer, what they change, and what they say when they cannot."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from starlette.testclient import TestClient

from conftest import make_blobs
from efcil import IncrementalClassifier
from efcil.serve.app import PAGE
from efcil.serve.limits import Limits
from efcil.teaching.store import Store
from serving import LONGEST, SIZE, client_of, ended, held_back, photo, photos, taught_model, zip_of


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One server for tests that leave its classes as they find them; its process for lessons starts once."""
    model = taught_model(tmp_path_factory.mktemp("served") / "pets.efcil", "cat", "dog")
    with client_of(model) as client:
        client.model = model  # type: ignore[attr-defined]
        yield client


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[TestClient]:
    """A server that a test may change; no lesson is taught to it."""
    with client_of(taught_model(tmp_path / "pets.efcil", "cat", "dog", "salt & <pepper>/a")) as client:
        yield client


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [row["class"] for row in answer.json()["classes"]]


def test_health(client: TestClient) -> None:
    expected = {"status": "ok", "classes": 2, "learning": False, "model": "pets.efcil"}
    assert client.get("/healthz").json() == expected


def test_answers_are_those_of_the_model(client: TestClient) -> None:
    sent = [("images", ("a.png", photo("cat", 5))), ("images", ("b.png", photo("dog", 6)))]
    answers = client.post("/predict", files=sent).json()["answers"]
    pixels = np.concatenate([make_blobs([name], 1, size=SIZE, seed=seed)[0] for name, seed in (("cat", 5), ("dog", 6))])
    model = IncrementalClassifier.load(client.model)  # type: ignore[attr-defined]
    said = model.answers(pixels)
    assert [row["photo"] for row in answers] == ["a.png", "b.png"]
    assert [row["answer"] for row in answers] == model.predict(pixels, unknown=True).tolist()
    assert [set(row) for row in answers] == [{"photo", "answer", "unknown", "familiarity", "guesses"}] * 2
    best = answers[0]["guesses"]
    assert [guess["class"] for guess in best] == model.classes_[np.argsort(-said.probabilities[0])].tolist()
    assert best[0]["probability"] == pytest.approx(float(said.probabilities[0].max()), abs=1e-5)
    assert answers[0]["familiarity"] == pytest.approx(float(said.familiarity[0]), abs=1e-3)


def test_what_is_unlike_every_class_is_unknown(client: TestClient) -> None:
    answer = client.post("/predict", files={"images": ("x.png", photo("zebra"))}).json()["answers"][0]
    assert answer["unknown"] == (answer["answer"] == "unknown") == (answer["familiarity"] < 0.05)


def test_a_lesson_from_sending_to_undoing(client: TestClient) -> None:
    before = client.get("/model").content

    def events() -> list[dict[str, Any]]:
        with client.stream("GET", answer.headers["location"], headers={"Accept": "text/event-stream"}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            return [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]

    with ThreadPoolExecutor(1) as pool:
        with held_back(os.getpid()):  # until it is watched
            answer = client.post("/lessons", data={"name": " bird "}, files=photos("bird"))
            waiting = answer.json()
            assert answer.status_code == 202 and answer.headers["location"] == f"/lessons/{waiting['id']}"
            assert waiting["status"] in ("waiting", "running") and waiting["classes"] == {"bird": 3}
            assert client.get("/healthz").json()["learning"]
            watching, until = pool.submit(events), time.monotonic() + LONGEST
            while client.app.requests == 0:  # type: ignore[attr-defined]
                assert time.monotonic() < until
                time.sleep(0.02)
        told = watching.result(LONGEST)
    assert told[-1]["status"] == "done" and "running" in [row["status"] for row in told]
    stages = {row["progress"]["stage"] for row in told if row["progress"]}
    assert "looking at the photos" in stages and not any("epochs" in stage for stage in stages)
    assert told[-1] == client.get(answer.headers["location"]).json() == client.get("/lessons").json()["lessons"][-1]
    report = told[-1]["report"]
    assert report["classes"][0]["class"] == "bird" and report["old_before"] is not None and report["seconds"] > 0
    rows = client.get("/classes").json()["classes"]
    assert [(row["class"], row["photos"]) for row in rows] == [("cat", 6), ("dog", 6), ("bird", 3)]
    asked = {"images": ("x.png", photo("bird", 9))}
    guesses = client.post("/predict", files=asked).json()["answers"][0]["guesses"]
    now = IncrementalClassifier.load(client.model)  # type: ignore[attr-defined]
    shares = now.predict_proba(make_blobs(["bird"], 1, size=16, seed=9)[0])[0]
    expected = dict(zip(now.classes_.tolist(), map(float, shares), strict=True))
    assert {guess["class"]: guess["probability"] for guess in guesses} == pytest.approx(expected, abs=1e-4)
    assert names(client.post("/undo")) == ["cat", "dog"]
    assert client.get("/model").content == before
    assert client.get("/lessons").json()["lessons"][-1]["undone"] is True


def test_a_zip_teaches_several_classes_and_a_known_one_more(client: TestClient) -> None:
    inside = {f"all/{name}/{k}.png": photo(name, k) for name in ("cat", "fish") for k in range(3)}
    archive = {"archive": ("lesson.zip", zip_of(inside | {"__MACOSX/cat/._1.png": b"?"}))}
    lesson = ended(client, client.post("/lessons", files=archive))
    assert lesson["status"] == "done" and lesson["classes"] == {"cat": 3, "fish": 3}
    assert [row["photos"] for row in client.get("/classes").json()["classes"]] == [9, 6, 3]
    assert names(client.post("/undo")) == ["cat", "dog"]


def test_lessons_queue_and_none_is_lost(client: TestClient) -> None:
    sent = [client.post("/lessons", data={"name": name}, files=photos(name)) for name in ("ant", "bee", "cow")]
    assert [ended(client, answer)["status"] for answer in sent] == ["done"] * 3
    assert names(client.get("/classes")) == ["cat", "dog", "ant", "bee", "cow"]
    for _ in sent:
        client.post("/undo")
    assert names(client.get("/classes")) == ["cat", "dog"]


def test_while_a_lesson_is_under_way_nothing_else_changes(client: TestClient) -> None:
    with held_back(os.getpid()):
        answer = client.post("/lessons", data={"name": "fox"}, files=photos("fox"))
        refused = [
            client.post("/undo"),
            client.delete("/classes/cat"),
            client.patch("/classes/cat", json={"name": "tiger"}),
        ]
    assert {(row.status_code, row.json()["detail"]) for row in refused} == {
        (409, "A lesson is under way or waiting; try again when it is done.")
    }
    assert client.post("/predict", files=photos("cat", 1)).status_code == 200
    assert ended(client, answer)["status"] == "done"
    client.post("/undo")


def test_a_lesson_that_cannot_be_learnt_fails_with_the_reason(client: TestClient, tmp_path: Path) -> None:
    with Store(client.model).changing():  # type: ignore[attr-defined]
        lesson = ended(client, client.post("/lessons", data={"name": "owl"}, files=photos("owl")))
    assert lesson["status"] == "failed" and "is being changed by another command" in lesson["error"]
    assert names(client.get("/classes")) == ["cat", "dog"]


def test_renaming_forgetting_and_undoing(alone: TestClient) -> None:
    strange = quote("salt & <pepper>/a", safe="")
    assert names(alone.patch(f"/classes/{strange}", json={"name": "spice"})) == ["cat", "dog", "spice"]
    undone = alone.post("/undo")
    assert names(undone) == ["cat", "dog", "salt & <pepper>/a"]
    assert undone.json()["taken_back"] == "the renaming of salt & <pepper>/a to spice"
    assert names(alone.delete(f"/classes/{strange}")) == ["cat", "dog"]
    assert alone.post("/undo").status_code == 409
    assert names(alone.delete("/classes/dog")) == ["cat"]
    last = alone.delete("/classes/cat")
    assert last.status_code == 409 and "only class" in last.json()["detail"]


def test_undoing_after_forgetting_takes_no_other_lesson_unasked(tmp_path: Path) -> None:
    store = Store(taught_model(tmp_path / "pets.efcil", "cat", "dog"))
    store.replace(store.load().partial_fit(*make_blobs(["bird"], size=SIZE)))
    with client_of(store.path) as client:
        assert names(client.delete("/classes/dog")) == ["cat", "bird"]
        refused = client.post("/undo")
        assert refused.status_code == 409 and refused.json()["takes_back"] == "the lesson of bird (6)"
        assert "further=true goes back beyond it, which takes back the lesson" in refused.json()["detail"]
        assert names(client.get("/classes")) == ["cat", "bird"]
        undone = client.post("/undo?further=true")
        assert names(undone) == ["cat"] and undone.json()["taken_back"] == "the lesson of bird (6)"
        assert client.post("/undo?further=perhaps").status_code == 422


def test_what_has_begun_is_brought_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that takes longer than a request may take is neither half done nor overtaken by another."""
    go_on, replace = threading.Event(), Store.replace

    def slow(store: Store, classifier: IncrementalClassifier) -> None:
        assert go_on.wait(LONGEST)
        replace(store, classifier)

    monkeypatch.setattr(Store, "replace", slow)
    model = taught_model(tmp_path / "pets.efcil", "cat", "dog")
    past = {"id": "1", "status": "done", "classes": {"cat": 6}, "time": "2025-01-01 10:00:00"}
    (tmp_path / "pets.efcil.lessons.json").write_text(json.dumps({"earlier": 0, "lessons": [past]}))
    with client_of(model, limits=Limits(seconds=2)) as client:
        assert client.patch("/classes/cat", json={"name": "tiger"}).status_code == 408
        client.app.limits = Limits()  # type: ignore[attr-defined]  # from here on everything has its time
        assert client.delete("/classes/dog").status_code == 409
        assert names(client.get("/classes")) == ["cat", "dog"]
        go_on.set()
        until = time.monotonic() + LONGEST
        while (answer := client.delete("/classes/dog")).status_code == 409:  # until the first change is complete
            assert time.monotonic() < until
            time.sleep(0.02)
        assert names(answer) == ["tiger"]
        assert client.get("/lessons").json()["lessons"][0]["classes"] == {"tiger": 6}


def test_the_model_can_be_taken_home(alone: TestClient, tmp_path: Path) -> None:
    answer = alone.get("/model")
    (tmp_path / "copy.efcil").write_bytes(answer.content)
    assert len(IncrementalClassifier.load(tmp_path / "copy.efcil").classes_) == 3
    assert "pets.efcil" in answer.headers["content-disposition"]
    assert int(answer.headers["content-length"]) == len(answer.content)


def test_a_model_that_another_command_changes_is_taken_up(alone: TestClient, tmp_path: Path) -> None:
    store = Store(tmp_path / "pets.efcil")
    store.replace(store.load().rename("cat", "tiger"))
    alone.get("/classes")  # notices; the model from before answers until the new one is ready
    until = time.monotonic() + LONGEST
    while "tiger" not in names(alone.get("/classes")):
        assert time.monotonic() < until, "the change was never seen"
        time.sleep(0.02)
    store.path.write_bytes(b"damaged")
    for _ in range(20):  # the model before goes on answering
        assert alone.post("/predict", files=photos("dog", 1)).status_code == 200


def test_before_the_first_lesson(tmp_path: Path) -> None:
    with client_of(tmp_path / "new.efcil") as client:
        assert client.get("/classes").json() == {"classes": []}
        assert client.get("/lessons").json() == {"lessons": []}
        assert client.post("/predict", files=photos("cat", 1)).status_code == 409
        assert client.post("/undo").status_code == 409
        assert client.get("/model").status_code == client.delete("/classes/cat").status_code == 404
        assert client.get("/healthz").json()["classes"] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/lessons/none", 404, "There is no lesson 'none'"),
        ("GET", "/nowhere", 404, "There is nothing at this address"),
        ("DELETE", "/classes/cta", 404, "There is no class called 'cta'; did you mean cat?"),
        ("PATCH", "/classes/cta", 404, "did you mean cat?"),
        ("PUT", "/undo", 405, "This address does not take PUT."),
        ("GET", "/page/../app.py", 404, "There is nothing at this address"),
    ],
)
def test_what_is_not_there(alone: TestClient, method: str, path: str, status: int, sentence: str) -> None:
    answer = alone.request(method, path, json={"name": "x"} if method == "PATCH" else None)
    assert (answer.status_code, sentence in answer.json()["detail"]) == (status, True), answer.text


@pytest.mark.parametrize("body", [{}, {"name": 3}, {"name": "a", "more": 1}, [], {"name": "\ud800"}, {"\ud800": 1}])
def test_a_new_name_must_be_given_as_it_should(alone: TestClient, body: Any) -> None:
    answer = alone.patch("/classes/cat", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422 and isinstance(answer.json()["detail"], str)
    clash = alone.patch("/classes/cat", json={"name": "dog"})
    assert clash.status_code == 409
    assert clash.json()["detail"] == "'dog' is the name of a class already; choose another."


def test_metrics(client: TestClient) -> None:
    client.post("/predict", files=photos("cat", 2))
    client.delete("/classes/a-private-name")
    text = client.get("/metrics").text
    assert re.search(r'efcil_requests_total\{method="POST",route="/predict",status="200"\} [1-9]', text)
    assert 'route="/classes/{name:path}",status="404"' in text and "a-private-name" not in text
    assert "efcil_classes 2.0" in text and "efcil_held_bytes 0.0" in text
    assert re.search(r"efcil_photos_answered_total ([2-9]|\d\d)", text) and "process_resident_memory_bytes" in text


def test_the_page_and_its_files(client: TestClient) -> None:
    assert client.get("/").content == (PAGE / "index.html").read_bytes()
    assert client.get("/page/index.html").status_code == 200
    assert "default-src 'none'" in client.get("/").headers["content-security-policy"]


def test_the_description_has_every_call_with_examples(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    assert {path: sorted(calls) for path, calls in described["paths"].items()} == {
        "/predict": ["post"],
        "/lessons": ["get", "post"],
        "/lessons/{id}": ["get"],
        "/classes": ["get"],
        "/classes/{name}": ["delete", "patch"],
        "/undo": ["post"],
        "/model": ["get"],
        "/healthz": ["get"],
        "/metrics": ["get"],
    }
    parts = described["components"]["schemas"]
    shown = ("Problem", "Answers", "Lesson", "Classes", "Undone", "NewName", "Health")
    assert all(parts[name]["examples"] for name in shown)
    assert client.get("/docs").status_code == 404
    found = client.post("/lessons", files=photos("cat", 1)).json()
    assert set(found) == {"detail"}  # as Problem says


def test_too_many_lessons_are_refused(tmp_path: Path) -> None:
    model = taught_model(tmp_path / "pets.efcil", "cat", "dog")
    with held_back(os.getpid()), client_of(model, limits=Limits(lessons=1)) as client:
        sent = [client.post("/lessons", data={"name": "a"}, files=photos("a", 1)) for _ in range(2)]
        assert [answer.status_code for answer in sent] == [202, 409]
        assert "which is as many as it may have here" in sent[1].json()["detail"]
    with held_back(os.getpid()), client_of(model, limits=Limits(waiting=1)) as client:
        sent = [client.post("/lessons", data={"name": "a"}, files=photos("a", 1)) for _ in range(3)]
        assert sent[-1].status_code == 429 and "lessons are waiting already" in sent[-1].json()["detail"]
    kept = json.loads((tmp_path / "pets.efcil.lessons.json").read_text())["lessons"]
    assert {lesson["status"] for lesson in kept} == {"failed"}  # both servers were stopped before any was learnt
    assert all("The server was stopped" in lesson["error"] for lesson in kept)
