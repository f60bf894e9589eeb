"""A person at the page, in a real browser, at a real server, with real photos: asks, teaches, corrects, regrets."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from visits import PATIENCE, Address, Visit, asked, folder_of, photos, served

from efcil.cli import main
from serving import held_back

pytestmark = pytest.mark.slow

LOST = {"id": "1", "status": "lost", "classes": {"mug": 3}, "error": "It ended too early."}
REPORT = {"classes": [], "how": "", "old_before": 0.9, "old_after": 0.8, "confusions": [], "seconds": 1.0}
DELETED = {"id": "2", "status": "done", "classes": {}, "undone": True, "report": REPORT}
PAST = [{**lesson, "time": "2026-01-02 03:04:05"} for lesson in (LOST, DELETED)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """A server of a model with a past. Starting one takes long, so tests share it and take back what they do to it."""
    folder = tmp_path_factory.mktemp("taught")
    source = folder_of(folder / "first", {kind: photos(kind, 0, 7) for kind in ("mug", "keyboard", "monitor")})
    assert main(["learn", str(folder / "things.efcil"), str(source)]) == 0
    (folder / "things.efcil.lessons.json").write_text(json.dumps({"earlier": 0, "lessons": PAST}))
    with served(folder / "things.efcil") as address:
        yield address


def bars(card: Any) -> list[tuple[str, str]]:
    """Each bar's words and number."""
    rows = card.locator(".bars li:not(.none)")
    words, numbers = (rows.locator(part).all_text_contents() for part in (".label", ".share"))
    return list(zip(words, numbers, strict=True))


def test_a_newcomer_teaches_two_things_and_asks(browser: Any, tmp_path: Path) -> None:
    with ExitStack() as server:
        address = server.enter_context(served(tmp_path / "things.efcil"))
        visit = Visit(browser, address)
        visit.find("#welcome").wait_for()
        assert visit.find("#ask-body").is_hidden() and "knows nothing yet" in visit.find("#model-line").inner_text()
        visit.find("#welcome-go").click()
        assert visit.page.evaluate("document.activeElement.id") == "class-name"
        with held_back(address.pid):
            visit.teach("mug", photos("mug", 0, 6))
            visit.find(".lesson.going progress").wait_for()
            assert visit.find(".lesson.going h3").inner_text() == "Learning mug"
            drop(visit, "[data-picker=teach]", photos("bike", 0, 6))  # while the first is learnt
            visit.find("#tray li:nth-child(6)").wait_for()
            visit.find("#class-name").fill("bike")
            visit.find("#teach-button").click()
            visit.find(".lesson.going", has_text="Learning bike").wait_for()
        visit.wait_for_class("mug")
        visit.wait_for_class("bike")
        report = visit.find(".lesson.done", has_text="bike is known now")
        report.wait_for()
        first, second = asked(address, "lessons")["lessons"]
        assert first["report"]["old_before"] is None and second["report"]["old_before"] is not None
        numbers = dict(
            zip(report.locator("dt").all_text_contents(), report.locator("dd").all_text_contents(), strict=True)
        )
        percents = [f"{100 * second['report'][key]:.0f}\u00a0%" for key in ("old_before", "old_after")]
        assert numbers["the others"] == " → ".join(percents)
        assert numbers["named rightly"] == f"{100 * second['report']['classes'][0]['accuracy']:.0f}\u00a0%"
        assert visit.find("#welcome").is_hidden()

        card = visit.ask(photos("bike", 15, 16)[0])
        assert bars(card)[0][0] == "bike" and len(bars(card)) == 2
        lengths = [row.bounding_box()["width"] for row in card.locator(".filled").all()]
        assert lengths[0] > 5 * lengths[1]
        assert [row.inner_text().split("\n")[1] for row in visit.find("#lesson-list summary").all()] == [
            "bike (6)",
            "mug (6)",
        ]
        assert visit.find("#class-list img.face").count() == 2  # of photos that were taught here, in this tab
        assert visit.page.evaluate("Object.keys(localStorage).length") == 0
        assert all(request.url.startswith((address, "blob:", "data:")) for request in visit.requests)
        assert visit.troubles == []
    with visit:  # the server is gone
        visit.find("[data-picker=ask] label input").set_input_files(photos("mug", 7, 8))
        visit.find(".answer .error", has_text="The server does not answer.").wait_for()
        visit.find("#undo").click()
        visit.find("#classes-error", has_text="The server does not answer.").wait_for()


def drop(visit: Visit, place: str, paths: list[str]) -> None:
    """Drop files onto a place, as the browser does when somebody lets go of them."""
    given = [{"name": Path(path).name, "bytes": list(Path(path).read_bytes())} for path in paths]
    visit.find(place).evaluate(
        """(place, given) => {
            const dataTransfer = new DataTransfer();
            for (const {name, bytes} of given)
                dataTransfer.items.add(new File([new Uint8Array(bytes)], name, {type: "image/jpeg"}));
            for (const kind of ["dragenter", "dragover", "drop"])
                place.dispatchEvent(new DragEvent(kind, {dataTransfer, bubbles: true, cancelable: true}));
        }""",
        given,
    )


def test_none_of_these_is_put_right_with_a_new_name_and_undone(browser: Any, shared: str) -> None:
    with Visit(browser, shared) as visit:
        visit.wait_for_class("mug")
        before = visit.classes()
        card = visit.ask(photos("bike", 3, 4)[0])
        assert card.locator("h3").inner_text() == "None of these"
        lines = card.locator(".bars li").all_inner_texts()
        assert lines[:2] == ["none of these", "If it had to be one of them:"]
        assert {name for name, _ in bars(card)} == set(before)
        card.locator("input").fill("bike")
        card.get_by_role("button", name="Teach", exact=True).click()
        visit.wait_for_class("bike")
        assert sorted(visit.classes()) == sorted([*before, "bike"])
        card.locator("h3", has_text="bike").wait_for(timeout=PATIENCE)  # it is asked again by itself
        assert bars(card)[0][0] == "bike"
        visit.find("#undo").click()
        visit.find("#classes-said", has_text="Undone: the lesson of bike (1)").wait_for(timeout=PATIENCE)
        assert visit.find("#current .lesson").count() == 0  # nothing says that it is known
        assert visit.classes() == before
        assert "undone" in visit.find("#lesson-list summary").first.inner_text()


def test_a_wrong_answer_is_put_right_with_one_click(browser: Any, shared: str) -> None:
    with Visit(browser, shared) as visit:
        visit.wait_for_class("mug")
        before = {row["class"]: row["photos"] for row in asked(shared, "classes")["classes"]}
        card = visit.ask(photos("keyboard", 8, 9)[0])
        assert bars(card)[0][0] == "keyboard"
        card.locator(".chip", has_text="mug").click()  # somebody insists that this one is a mug
        visit.find(".lesson.done", has_text="mug is known now").wait_for(timeout=PATIENCE)
        after = {row["class"]: row["photos"] for row in asked(shared, "classes")["classes"]}
        assert after == {**before, "mug": before["mug"] + 1}
        line = visit.find("#class-list li", has_text="mug")
        assert line.locator("img").count() == 1
        assert f"{after['mug']} photos" in line.inner_text()
        assert "mug (1)" in visit.find("#lesson-list summary").first.inner_text()
        visit.find("#undo").click()
        line.get_by_text(f"{before['mug']} photos").wait_for(timeout=PATIENCE)
        assert line.locator("img").count() == 0  # the picture of the keyboard went with its lesson


def test_rename_delete_and_undo(browser: Any, shared: str) -> None:
    with Visit(browser, shared) as visit:
        visit.wait_for_class("keyboard")
        before = visit.classes()
        visit.page.get_by_role("button", name="Rename keyboard").click()
        assert visit.page.evaluate("document.activeElement.id") == "new-name"
        visit.page.keyboard.type("keys / no. 1 ⌨")
        visit.page.keyboard.press("Enter")
        visit.wait_for_class("keys / no. 1 ⌨")
        assert visit.classes() == ["keys / no. 1 ⌨" if name == "keyboard" else name for name in before]
        assert visit.page.evaluate("document.activeElement.dataset.rename") == "keys / no. 1 ⌨"
        visit.find("#undo").click()
        visit.wait_for_class("keyboard")
        said = visit.find("#classes-said").inner_text()
        assert said == "Undone: the renaming of keyboard to keys / no. 1 ⌨."

        visit.page.get_by_role("button", name="Rename keyboard").click()
        visit.find("#new-name").fill("mug")
        visit.page.keyboard.press("Enter")
        visit.find("#new-name-error").wait_for()  # the server's sentence
        assert visit.find("#new-name").get_attribute("aria-invalid") == "true"
        visit.page.keyboard.press("Escape")
        assert visit.classes() == before

        visit.page.get_by_role("button", name="Delete monitor").click()
        question = visit.page.get_by_role("alertdialog", name="Delete monitor?")
        question.wait_for()
        assert visit.page.evaluate("document.activeElement.id") == "confirm-no"
        visit.page.keyboard.press("Escape")
        question.wait_for(state="hidden")
        assert visit.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Delete monitor"
        assert len(asked(shared, "classes")["classes"]) == len(before)
        visit.page.keyboard.press("Enter")
        visit.find("#confirm-yes").click()
        visit.find("#class-list .name", has_text="monitor").wait_for(state="detached")
        left = [name for name in before if name != "monitor"]
        assert visit.classes() == left == [row["class"] for row in asked(shared, "classes")["classes"]]


def test_undo_after_delete_asks_before_it_takes_another_lesson_back(browser: Any, shared: str) -> None:
    with Visit(browser, shared) as visit:
        visit.wait_for_class("mug")
        before = visit.classes()
        for thing in ("bike", "mouse"):
            visit.teach(thing, photos(thing, 0, 2))
            visit.wait_for_class(thing)
        visit.page.get_by_role("button", name="Delete bike").click()
        visit.find("#confirm-yes").click()
        visit.find("#class-list .name", has_text="bike").wait_for(state="detached")
        visit.find("#undo").click()
        question = visit.page.get_by_role("alertdialog", name="Go further back?")
        question.wait_for()
        assert "takes back the lesson of mouse (2)" in question.inner_text()
        visit.find("#confirm-no").click()
        assert visit.classes() == [*before, "mouse"]
        visit.find("#undo").click()
        visit.find("#confirm-yes").click()
        visit.find("#classes-said", has_text="Undone: the lesson of mouse (2)").wait_for(timeout=PATIENCE)
        assert visit.classes() == before and visit.find("#current .lesson").count() == 0


def test_a_lesson_goes_on_while_the_page_is_loaded_again(browser: Any, shared: Address) -> None:
    with Visit(browser, shared) as visit:
        with held_back(shared.pid):
            visit.teach("headphones", photos("headphones", 0, 13))
            visit.find(".lesson.going").wait_for()
            visit.page.reload()
            visit.find(".lesson.going", has_text="Learning headphones").wait_for()
        visit.wait_for_class("headphones")
        visit.find(".lesson.done", has_text="headphones is known now").wait_for()
        past = visit.find("#lesson-list details").first
        past.locator("summary").click()
        report = asked(shared, "lessons")["lessons"][-1]["report"]
        assert f"Measured on {report['how']}" in past.inner_text() and "the others" in past.inner_text()
        with visit.page.expect_download() as downloaded:
            visit.find("#download").click()
        assert downloaded.value.suggested_filename == "things.efcil"
        assert Path(downloaded.value.path()).stat().st_size > 1_000_000


def test_the_camera_gives_a_photo_to_ask_about_and_a_series_to_teach(browser: Any, shared: str) -> None:
    with Visit(browser, shared) as visit:
        visit.find("[data-picker=ask] [data-camera]").click()
        visit.page.get_by_role("dialog", name="What is this?").wait_for()
        visit.find("#camera-view:not([paused])").wait_for()
        take(visit)
        visit.find("#camera").wait_for(state="hidden")
        visit.find(".answer .bars").wait_for(timeout=PATIENCE)
        assert visit.find("#camera-view").evaluate("view => view.srcObject") is None  # its light goes out

        visit.find("[data-picker=teach] [data-camera]").click()
        for number in (1, 2):
            take(visit)
            visit.find(f"#tray li:nth-child({number})").wait_for()
        assert "2 photos taken" in visit.find("#camera-said").inner_text()
        visit.find("#camera-done").click()
        visit.find("#tray .close").first.click()
        assert visit.find("#tray li").count() == 1 and visit.find("#tray-count").inner_text().startswith("1 photo;")


def take(visit: Visit) -> None:
    """Press the button as soon as the camera shows something."""
    until = time.monotonic() + PATIENCE / 1000
    while not visit.find("#camera-view").evaluate("view => view.videoWidth && !view.paused"):
        assert time.monotonic() < until, "the camera shows nothing"
        visit.page.wait_for_timeout(50)
    visit.find("#camera-take").click()


def test_large_photos_are_made_smaller_before_they_are_sent(browser: Any, shared: str, tmp_path: Path) -> None:
    large, small = tmp_path / "large.jpg", Path(photos("mug", 7, 8)[0])
    noise = Image.effect_noise((3000, 2000), 80).convert("RGB")
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held upright
    noise.save(large, exif=turned)
    with Visit(browser, shared) as visit:
        visit.ask(str(large))
        visit.ask(str(small))
        first, second = visit.sent_photos("predict")
        assert Image.open(io.BytesIO(first)).size == (512, 768)
        assert second == small.read_bytes()


def test_mistakes_are_told_in_one_sentence_near_the_thing(browser: Any, shared: str, tmp_path: Path) -> None:
    words, broken = tmp_path / "words.txt", tmp_path / "broken.jpg"
    words.write_text("no photo")
    broken.write_bytes(b"\xff\xd8\xff no photo")
    with Visit(browser, shared) as visit:
        visit.wait_for_class("mug")
        visit.find("#teach-button").click()
        assert visit.find("#class-name-error").inner_text() == "Type what it is called first."
        assert visit.page.evaluate("document.activeElement.id") == "class-name"
        visit.find("#class-name").fill("a < b")
        visit.find("#teach-button").click()
        assert visit.find("#photos-error").inner_text() == "Add at least one photo of it."
        visit.find("#teach-files").set_input_files([str(words), str(broken)])
        visit.find("#photos-error", has_text="words.txt is not a photo.").wait_for()
        assert "broken.jpg cannot be read" in visit.find("#photos-error").inner_text()
        visit.find("#teach-files").set_input_files(photos("mug", 0, 1))
        visit.find("#tray li").wait_for()
        visit.find("#teach-button").click()
        visit.find("#teach-error", has_text="must not hold <").wait_for()
        assert visit.find("#tray li").count() == 1 and visit.find("#class-name").input_value() == "a < b"  # not lost


def test_lessons_of_the_past_are_there(browser: Any, shared: str) -> None:
    with Visit(browser, shared) as visit:
        visit.wait_for_class("mug")
        if visit.find("#more-lessons").is_visible():
            visit.find("#more-lessons").click()
        lost, deleted = (visit.find(f"#lesson-list details[data-id='{row['id']}']") for row in PAST)
        assert lost.inner_text().split() == ["lost", "mug", "(3)", "2026-01-02", "03:04"]
        assert "a class that was deleted since" in deleted.inner_text() and "undone" in deleted.inner_text()
        assert deleted.locator(".brief").inner_text() == "the others 90\u00a0% → 80\u00a0%"
        lost.locator("summary").click()
        assert "It ended too early." in lost.inner_text()
