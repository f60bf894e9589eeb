"""A real server, and a person who visits its page: what the tests of the page share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import cli_command, cli_environment, real_data

DESKTOP, TELEPHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 600_000  # milliseconds for a lesson on a machine that has much else to do

SENT = """const plain = window.fetch;
window.sent = [];
window.fetch = (path, options) => { window.sent.push([path, options?.body]); return plain(path, options); };
"""  # forms with files are not shown to whoever watches a browser from outside


class Address(str):
    """Where a server is found, and its process."""

    pid: int


@contextmanager
def served(model: Path, *options: str, name: str = "127.0.0.1", **environment: str) -> Iterator[Address]:
    """The address of a server of this model, called by this name; it is stopped in the end."""
    command = cli_command("serve", model, "--port", "0", "--json", *options)
    with subprocess.Popen(
        command, env={**cli_environment(), **environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            address = Address(f"http://{name}:{told['address'].rpartition(':')[2]}/")
            address.pid = told["pid"]
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def photos(kind: str, first: int, last: int, camera: str = "dslr") -> list[str]:
    """Paths of real photos of a thing."""
    found = sorted((real_data("office") / camera / kind).iterdir())[first:last]
    assert len(found) == last - first
    return [str(path) for path in found]


def folder_of(root: Path, photos_of: dict[str, list[str]]) -> Path:
    """A folder of class folders with these photos."""
    for name, paths in photos_of.items():
        (root / name).mkdir(parents=True)
        for path in paths:
            os.symlink(path, root / name / Path(path).name)
    return root


def asked(address: str, path: str) -> Any:
    """What the server answers to a program."""
    with urllib.request.urlopen(address + path) as answer:
        return json.load(answer)


class Visit:
    """The page in a browser of its own, and everything that went wrong or out meanwhile."""

    def __init__(self, browser: Any, address: str, size: dict[str, int] = DESKTOP, **options: Any) -> None:
        self.context = browser.new_context(viewport=size, **options)
        self.address = address
        self.troubles: list[str] = []
        self.requests: list[Any] = []
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("filechooser", lambda chooser: None)  # from the start: Chromium takes a while to tell of them
        self.page.set_default_timeout(PATIENCE / 5)
        self.page.add_init_script(SENT)
        self.page.goto(address)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()

    def find(self, selector: str, **options: Any) -> Any:
        return self.page.locator(selector, **options)

    def classes(self) -> list[str]:
        """The names in the list."""
        return [str(name) for name in self.find("#class-list .who .name").all_text_contents()]

    def teach(self, name: str, paths: list[str]) -> None:
        """Fill the form in, and press the button."""
        self.find("#class-name").fill(name)
        before = self.find("#tray li").count()
        self.find("#teach-files").set_input_files(paths)
        self.find(f"#tray li:nth-child({before + len(paths)})").wait_for()
        self.find("#teach-button").click()

    def wait_for_class(self, name: str) -> None:
        self.find("#class-list .name", has_text=name).wait_for(timeout=PATIENCE)

    def sent_photos(self, path: str) -> list[bytes]:
        """The files that went to this path."""
        listed = self.page.evaluate(
            """path => Promise.all(
                window.sent.filter(([to]) => to === path).flatMap(([, body]) => body.getAll("images"))
                .map(async file => [...new Uint8Array(await file.arrayBuffer())]))""",
            path,
        )
        return [bytes(file) for file in listed]

    def ask(self, path: str) -> Any:
        """The card with the answer about a photo."""
        self.find("[data-picker=ask] label input").set_input_files(path)
        card = self.find(".answer", has=self.page.get_by_alt_text(f"The photo {Path(path).name}")).first
        card.locator(".bars li").first.wait_for(timeout=PATIENCE)  # they stay while it is asked again
        return card
