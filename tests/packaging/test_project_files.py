"""The files that a stranger looks for: citation, container, workflow, hooks and templates hold what they should."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import missing
from efcil import __version__

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def recipe(target: str) -> list[str]:
    """The commands of a make target, with .venv/bin for $(BIN)."""
    text = (ROOT / "Makefile").read_text()
    (found,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found.splitlines()]


# Citation


def test_the_citation_has_what_its_format_requires() -> None:
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0" and citation["message"] and citation["title"] == "efcil"
    assert citation["authors"] == [{"name": "The efcil developers"}]
    assert (citation["type"], citation["license"], citation["version"]) == ("software", "MIT", __version__)
    keys = {"cff-version", "message", "title", "abstract", "type", "version", "license", "authors", "keywords"}
    assert set(citation) == keys | {"preferred-citation"}  # an unknown key makes the file invalid


def test_the_paper_is_the_one_of_the_readme() -> None:
    paper = read("CITATION.cff")["preferred-citation"]
    assert paper["type"] == "article" and paper["year"] == 2025
    readme = " ".join((ROOT / "README.md").read_text().split())
    names = [f"{author.get('name-particle', '')} {author['family-names']}".strip() for author in paper["authors"]]
    assert f"*{paper['title']}* ({', '.join(names)})" in readme


# Container


def test_the_linter_has_nothing_to_say_about_the_dockerfile() -> None:
    linter = shutil.which("hadolint", path=Path(sys.executable).parent) or shutil.which("hadolint")
    if linter is None:
        missing("hadolint is not installed; it comes with the extra dev")
    done = subprocess.run([str(linter), str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def last(instruction: str) -> str:
    """What the last instruction of this kind says, continued lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return " ".join(re.findall(rf"^{instruction} (.*)$", joined, re.MULTILINE)[-1].split())


def test_the_container_serves_as_a_user_without_rights() -> None:
    user, _, group = last("USER").partition(":")
    assert int(user) > 0 and int(group) > 0  # numbers, so that a cluster can see that it is not root
    assert DOCKERFILE.index("USER ") > max(m.start() for m in re.finditer(r"^(RUN|COPY) ", DOCKERFILE, re.MULTILINE))
    assert last("VOLUME") == "/models" and last("WORKDIR") == "/models"


def test_the_container_installs_what_is_pinned_and_no_cuda() -> None:
    installs = re.findall(r"pip install (.*)", DOCKERFILE)
    assert len(installs) == 2 and all("--constraint constraints.txt" in line for line in installs)
    extras = re.search(r"'\.\[([\w,]+)\]'", installs[1])
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= set(known) and "serve" in extras[1].split(",")
    assert "torch.version.cuda is None" in DOCKERFILE


def test_every_file_that_the_container_copies_reaches_the_builder() -> None:
    """.dockerignore leaves out everything but what it names."""
    first, *rest = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert first == "*"
    sent = [line[1:] for line in rest if line.startswith("!")]
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    ]
    assert sorted(copied) == sorted(sent)
    assert all((ROOT / name).exists() for name in copied)


# Hooks, workflow, templates


def test_the_hooks_before_a_commit_are_those_of_make_lint() -> None:
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == recipe("lint")
    assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in hooks)


def test_the_workflow_runs_the_same_as_everywhere_and_builds_the_wheel() -> None:
    workflow = read(".github/workflows/ci.yml")
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run", "make wheel"]
    assert workflow[True].keys() == {"push", "pull_request"}  # YAML takes the word on for a truth
    assert workflow["permissions"] == {"contents": "read"}
    assert any("-m build" in line for line in recipe("wheel"))
    script = (ROOT / ".ci/run").read_text()
    assert re.findall(r"^make (\S+)", script, re.MULTILINE) == ["lint", "docs", "test", "test-slow"]
    assert set(re.findall(r"\|\| (.*)$", script, re.MULTILINE)) == {"make test-again"}  # nothing else may fail
    assert any("--last-failed" in line for line in recipe("test-again"))


@pytest.mark.parametrize("name", ["bug", "method", "data-set"])
def test_an_issue_template_can_be_shown(name: str) -> None:
    template = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert template["name"] and template["description"] and template["labels"]
    questions = [part for part in template["body"] if part["type"] != "markdown"]
    assert all(part["type"] in {"input", "textarea", "checkboxes"} for part in questions)
    assert all(part["attributes"]["label"] for part in questions)
    ids = [part["id"] for part in questions]
    assert len(set(ids)) == len(ids) and any(part.get("validations", {}).get("required") for part in questions)


def test_no_template_is_forgotten_here() -> None:
    names = {path.name for path in (ROOT / ".github/ISSUE_TEMPLATE").iterdir()}
    assert names == {"bug.yml", "method.yml", "data-set.yml"}


# Make


def test_every_target_without_a_file_is_phony() -> None:
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    targets = set(re.findall(r"^([\w-]+):", text, re.MULTILINE))
    assert targets == set(phony.split()) >= {"docs", "wheel"}
