"""What `pip install efcil` gives: archives built from a copy of the checkout, and the wheel used by itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.request
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from efcil import __version__
from efcil.bench.scenarios import preset_names

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MEGABYTE = 2**20
MADE = {"PKG-INFO", "setup.cfg"}  # by the packager
TINY = ["width=4", "stem_stride=2", "data.images_per_class=20", "first.epochs=1", "first.rotation=false"]
TINY += ["incremental.epochs=1"]


def kept(root: Path) -> list[str]:
    """The files of the project, those not committed yet included, without what git is told to ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("only in a checkout is it known which files belong to the project")
    return sorted(name for name in listed.split("\0") if name and (root / name).is_file())


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive, and the wheel that is made of it; a run and a model that lie about are not to be in them."""
    folder = tmp_path_factory.mktemp("built")
    for name in kept(ROOT):
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / "source" / name)
    for name in ("data/cifar.bin", "runs/one/state.efcil", "pets.efcil", "src/efcil/__pycache__/cli.cpython-311.pyc"):
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "source" / name).write_bytes(bytes(1000))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(folder / "source")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Deprecat" not in done.stdout + done.stderr
    return folder / f"efcil-{__version__}.tar.gz", folder / f"efcil-{__version__}-py3-none-any.whl"


def test_the_wheel_holds_every_file_of_the_package_and_no_other(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[1]) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    source = {name.removeprefix("src/") for name in kept(ROOT) if name.startswith("src/efcil/")}
    assert (source - inside, inside - source) == (set(), set())
    assert {"efcil/bench/published.csv", "efcil/analysis/claims.yaml", "efcil/report/templates/base.html"} <= inside


def test_the_wheel_says_who_made_it_and_what_it_needs(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[1]) as wheel:
        about = Parser().parsestr(wheel.read(f"efcil-{__version__}.dist-info/METADATA").decode())
        assert f"efcil-{__version__}.dist-info/licenses/LICENSE" in wheel.namelist()
    assert (about["Name"], about["Version"], about["License-Expression"]) == ("efcil", __version__, "MIT")
    required = {line.split(">")[0] for line in about.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert required == {"torch", "numpy", "pillow", "safetensors", "pyyaml", "rich"}
    assert {"serve", "export", "completion", "report", "pretrained"} <= set(about.get_all("Provides-Extra", []))
    assert "# efcil" in about.get_payload()


def test_the_source_archive_is_the_project_without_data_and_runs(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[0]) as archive:
        inside = {member.name.partition("/")[2]: member.size for member in archive if member.isfile()}
    inside = {name: size for name, size in inside.items() if name not in MADE and ".egg-info/" not in name}
    assert set(inside) <= set(kept(ROOT))
    assert {"tests/conftest.py", "results/runs.csv", "docs/index.md", "Makefile", "constraints.txt"} <= set(inside)
    assert max(inside.values()) < MEGABYTE
    assert archives[0].stat().st_size < 4 * MEGABYTE


@pytest.fixture(scope="module")
def installed(archives: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and sees the packages of this one but not its efcil."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*command, "--disable-pip-version-check", str(archives[1])], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin"


def alone() -> dict[str, str]:
    """An environment from which the checkout cannot be seen."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}


def run(programs: Path, *command: str, folder: Path) -> str:
    """What a program prints; a warning is a failure."""
    program, *arguments = command
    environment = {**alone(), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [str(programs / program), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_package_is_the_one_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    place = run(installed, "python", "-c", "import efcil; print(efcil.__file__)", folder=tmp_path)
    assert Path(place.strip()).is_relative_to(installed.parent)
    assert run(installed, "efcil", "--version", folder=tmp_path) == f"efcil {__version__}\n"
    assert run(installed, "python", "-m", "efcil", "--help", folder=tmp_path).startswith("usage: efcil [-h]")


def test_lists_come_with_the_package(installed: Path, tmp_path: Path) -> None:
    rows = json.loads(run(installed, "efcil", "presets", "--json", folder=tmp_path))
    assert [row["name"] for row in rows] == preset_names()
    assert len(json.loads(run(installed, "efcil", "methods", "--json", folder=tmp_path))) > 20
    results = ["--results", str(ROOT / "results" / "runs.csv")]
    published = "imagenet-subset,cold,10,EFC++,A_inc,paper,,65.90,1.62"
    assert published in run(installed, "efcil", "table", "2", *results, "--format", "csv", folder=tmp_path)
    assert "EFC++ outperforms" in run(installed, "efcil", "claims", "cold-start-lead", *results, folder=tmp_path)


def test_a_run_and_its_report(installed: Path, tmp_path: Path) -> None:
    changes = [word for change in TINY for word in ("--set", change)]
    run(installed, "efcil", "run", "digits-cold5", "--method", "finetune", *changes, folder=tmp_path)
    run(installed, "efcil", "report", "runs", folder=tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>") and "finetune" in page and "<svg" in page


def test_the_server_has_its_page_and_the_container_sees_that_it_is_well(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "efcil"), "serve", "model.efcil", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, env=alone(), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            with urllib.request.urlopen(address, timeout=600) as answer:
                page = answer.read()
            assert page == (ROOT / "src/efcil/serve/page/index.html").read_bytes()
            for name in re.findall(rb'(?:src|href)="(/?page/[^"]+)"', page):
                urllib.request.urlopen(f"{address}/{name.decode().lstrip('/')}", timeout=600).close()
            until = time.monotonic() + 600
            while well(installed, address) != 0:  # it is asked again and again, as a busy machine may take its time
                assert time.monotonic() < until
        finally:
            server.terminate()
            server.wait(timeout=600)
    assert well(installed, address) != 0


def well(programs: Path, address: str) -> int:
    """What the Dockerfile's HEALTHCHECK says of a server."""
    (check,) = re.findall(r"^HEALTHCHECK .*\\\n +(\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    program, *arguments = json.loads(check)
    assert "http://127.0.0.1:8000/" in check
    words = [word.replace("http://127.0.0.1:8000", address) for word in arguments]
    done = subprocess.run([str(programs / program), *words], capture_output=True, env=alone(), check=False)
    return done.returncode
