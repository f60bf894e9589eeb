"""The page for everybody: names of all kinds, two themes, desk and telephone, the keyboard alone, a token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from visits import DESKTOP, TELEPHONE, Address, Visit, asked, folder_of, photos, served

from efcil.cli import main
from serving import held_back

pytestmark = pytest.mark.slow

AUDIT = (Path(__file__).parent / "audit.js").read_text()
MARKUP, LONG = "<img src=x onerror=console.error(1)>", "w" * 200
HEBREW, EMOJI = "ספל (כחול) 1", "🔧🪛 & “bits”"
KINDS = {MARKUP: "mug", LONG: "keyboard", HEBREW: "monitor", EMOJI: "headphones"}
CONFUSED = [{"class": MARKUP, "taken_for": LONG, "photos": 2}, {"class": HEBREW, "taken_for": EMOJI, "photos": 1}]
REPORT = {
    "classes": [{"class": name, "photos": 5, "accuracy": 0.8} for name in KINDS],
    "how": "each photo as if it had not been taught (leave-one-out)",
    "old_before": 0.98,
    "old_after": 0.91,
    "confusions": CONFUSED,
    "seconds": 4.0,
}
PAST = [
    {"id": str(place), "status": "done", "classes": dict.fromkeys(names, 5), "time": "2026-01-02 03:04:05"}
    for place, names in enumerate((KINDS, [LONG], [EMOJI], [HEBREW]))
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """A server of a model whose classes have names that pages break at; the command line takes folders of any name."""
    folder = tmp_path_factory.mktemp("names")
    source = folder_of(folder / "first", {name: photos(kind, 0, 5) for name, kind in KINDS.items()})
    assert main(["learn", str(folder / "names.efcil"), str(source)]) == 0
    past = [{**lesson, "report": REPORT} for lesson in PAST]
    (folder / "names.efcil.lessons.json").write_text(json.dumps({"earlier": 0, "lessons": past}))
    with served(folder / "names.efcil") as address:
        yield address


@pytest.mark.parametrize("size", [DESKTOP, TELEPHONE], ids=["desktop", "telephone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_stumbles(browser: Any, address: str, size: dict[str, int], scheme: str) -> None:
    options = {"color_scheme": scheme, "reduced_motion": "reduce", "has_touch": size is TELEPHONE}
    with Visit(browser, address, size, **options) as visit:
        visit.wait_for_class("bits")
        shown = [visit.ask(photos("monitor", 8, 9)[0]), visit.ask(photos("bike", 3, 4)[0])]
        assert [card.locator(".none").count() for card in shown] == [0, 1]  # one known, one not
        visit.find("#teach-files").set_input_files(photos("mug", 0, 3))
        visit.find("#tray li:nth-child(3)").wait_for()
        visit.find("#teach-button").click()  # without a name
        for summary in visit.find("summary").all():
            summary.click()
        assert visit.find(".numbers .worse").count() == len(PAST)
        assert visit.page.evaluate(AUDIT) == []
        visit.page.get_by_role("button", name=f"Rename {LONG}").click()
        visit.find("#new-name").fill("")
        visit.page.keyboard.press("Enter")
        assert visit.find("#new-name-error").inner_text() == "Type the new name first."
        assert visit.page.evaluate(AUDIT) == []
        visit.page.keyboard.press("Escape")
        visit.page.get_by_role("button", name=f"Delete {LONG}").click()
        assert visit.page.evaluate(AUDIT) == []
        box = visit.find("#confirm").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= size["width"]
        ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in ground[4:-1].split(",")) / 765
        assert brightness > 0.9 if scheme == "light" else brightness < 0.15
        moving = "element => parseFloat(getComputedStyle(element).transitionDuration) > 0"
        assert not visit.page.evaluate(f"[...document.querySelectorAll('*')].some({moving})")


def test_names_are_shown_as_they_are(browser: Any, address: str) -> None:
    with Visit(browser, address) as visit:
        visit.wait_for_class("bits")
        assert set(visit.classes()) >= set(KINDS)
        card = visit.ask(photos("mug", 6, 7)[0])
        labels = card.locator(".bars .label").all_text_contents()
        assert set(labels) <= set(asked_names(address)) and len(labels) >= len(KINDS)
        assert visit.find("img[src=x]").count() == 0 and visit.troubles == []
        first = visit.find("#lesson-list bdi", has_text=HEBREW).first
        assert first.evaluate("element => getComputedStyle(element).direction") == "rtl"
        assert first.locator("..").evaluate("element => getComputedStyle(element).direction") == "ltr"
        lengths = [row.bounding_box()["height"] for row in card.locator(".bars li").all()]
        assert max(lengths) < 3.5 * min(lengths)  # the long name takes two lines, not ten
        visit.page.get_by_role("button", name=f"Rename {MARKUP}").click()
        visit.find("#new-name").fill("50 % / a?b#c")
        visit.page.keyboard.press("Enter")
        visit.wait_for_class("50 % / a?b#c")
        assert MARKUP not in asked_names(address)
        visit.find("#undo").click()
        visit.wait_for_class(MARKUP)
        assert MARKUP in asked_names(address)


def asked_names(address: str) -> list[str]:
    return [row["class"] for row in asked(address, "classes")["classes"]]


def test_the_keyboard_is_enough(browser: Any, address: Address) -> None:
    with Visit(browser, address) as visit:
        visit.wait_for_class("bits")
        press = visit.page.keyboard.press
        press("Tab")
        assert visit.page.evaluate("document.activeElement.className") == "skip"
        reach(visit, "[data-picker=ask] label input")
        with visit.page.expect_file_chooser() as choosing:
            press("Enter")
        choosing.value.set_files(photos("calculator", 8, 9))
        visit.find(".answer .bars").wait_for()
        visit.find("#said", has_text="sure").or_(visit.find("#said", has_text="None of these")).wait_for(
            state="attached"
        )
        reach(visit, "#class-name")
        visit.page.keyboard.type("calculator")
        reach(visit, "#teach-files")
        with visit.page.expect_file_chooser() as choosing:
            press("Space")
        choosing.value.set_files(photos("calculator", 0, 5))
        visit.find("#tray li:nth-child(5)").wait_for()
        reach(visit, "#tray .close")
        press("Enter")  # one photo less, and the focus is on the next
        assert visit.find("#tray li").count() == 4
        assert visit.page.evaluate("document.activeElement.closest('#tray') !== null")
        reach(visit, "#teach-button")
        with held_back(address.pid):
            press("Enter")
            visit.find(".lesson.going").wait_for()
        assert visit.page.evaluate("document.activeElement.id") == "class-name"
        visit.wait_for_class("calculator")
        visit.find("#said", has_text="Learnt: calculator.").wait_for(state="attached")
        first = visit.find(".answer .bars li:not(.none) .label").first
        first.get_by_text("calculator").wait_for()  # asked again by itself


def reach(visit: Visit, wanted: str) -> None:
    """Press Tab until this has the focus, which can be seen."""
    for _ in range(60):
        visit.page.keyboard.press("Tab")
        if visit.page.evaluate(f"document.activeElement.matches('{wanted}')"):
            ringed = "[document.activeElement, document.activeElement.closest('label')].filter(Boolean)"
            assert visit.page.evaluate(f"{ringed}.some(e => parseFloat(getComputedStyle(e).outlineWidth) >= 2)")
            return
    pytest.fail(f"the key Tab does not lead to {wanted}")


def test_a_token_is_asked_for_and_the_telephone_opens_its_own_camera(browser: Any, tmp_path: Path) -> None:
    token = "0123456789abcdef-secret"
    options = ("--allow-host", "workshop.test")
    with served(tmp_path / "new.efcil", *options, name="workshop.test", EFCIL_TOKEN=token) as address:
        with Visit(browser, address, TELEPHONE, has_touch=True, is_mobile=True) as visit:
            question = visit.page.get_by_role("dialog", name="This server asks for its token")
            question.wait_for()
            assert visit.page.evaluate("document.activeElement.id") == "token-value"
            for wrong, sentence in (("", "Type the token first."), ("ключ", "letters, digits and signs")):
                visit.find("#token-value").fill(wrong)
                visit.page.keyboard.press("Enter")
                assert sentence in visit.find("#token-error").inner_text()
            visit.find("#token-value").fill("not the right one".replace(" ", "-"))
            visit.page.keyboard.press("Enter")
            visit.find("#token-error", has_text="does not know this token").wait_for()
            assert visit.page.evaluate(AUDIT) == []
            visit.find("#token-value").fill(token)
            visit.page.keyboard.press("Enter")
            visit.find("#welcome").wait_for()
            assert "new.efcil" in visit.find("#model-line").inner_text() and question.is_hidden()
            assert not any(token in request.url for request in visit.requests)
            assert visit.page.evaluate("Object.values(sessionStorage)") == [token]
            assert visit.page.evaluate(AUDIT) == []  # the welcome

            assert visit.page.evaluate("isSecureContext") is False
            with visit.page.expect_file_chooser() as choosing:
                visit.find("[data-picker=teach] [data-camera]").click()
            assert choosing.value.element.get_attribute("capture") == "environment"
            choosing.value.set_files(photos("mug", 0, 1))
            visit.find("#tray li").wait_for()

            visit.page.reload()  # the token is still known in this tab
            visit.find("#welcome").wait_for()
            assert question.is_hidden()
        with Visit(browser, address) as visit:
            visit.find("#token-stop").click()
            visit.find("#trouble", has_text="Without its token").wait_for()
