"""check() finds what would spoil a run, and says it in sentences."""

from __future__ import annotations

from pathlib import Path

import image_trees as trees
import pytest

from conftest import run_cli
from efcil.cli import main
from efcil.data.fetch import check as checking
from efcil.data.fetch.check import Expected, check
from efcil.data.sets import cifar100, dn4il, imagenet, imagenet_subset, tiny_imagenet
from efcil.errors import UserError


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar100, "COUNTS", {"train": 200, "test": 100})
    for module, classes in ((tiny_imagenet, 3), (imagenet, 3), (imagenet_subset, 2), (dn4il, 2)):
        monkeypatch.setattr(module, "CLASSES", classes)
    small = {"cifar100": Expected(2, 1), "tiny-imagenet": Expected(2, 1), "imagenet-1k": Expected(test=1)}
    monkeypatch.setattr(checking, "EXPECTED", small)


def test_complete_sets_have_no_problems(tmp_path: Path) -> None:
    trees.cifar_binary(tmp_path, cifar100.COUNTS)
    trees.tiny_imagenet(tmp_path)
    trees.imagenet(tmp_path)
    trees.dn4il(tmp_path)
    (tmp_path / "imagenet-subset.txt").write_text("\n".join(trees.WNIDS[:2]))
    for name, classes, train, test, sampled in (
        ("cifar100", 100, 200, 100, 300),
        ("tiny-imagenet", 3, 6, 3, 9),
        ("imagenet-1k", 3, 9, 3, 9),
        ("imagenet-subset", 2, 6, 2, 6),
        ("dn4il", 12, 24, 12, 36),
    ):
        report = check(name, tmp_path)
        assert (report.problems, report.notes) == ([], []), name
        assert (report.classes, report.train, report.test, report.sampled) == (classes, train, test, sampled)
        assert report.train_per_class == (train // classes,) * 2 and report.test_per_class == (test // classes,) * 2
        assert bool(report.sources) == (name in ("imagenet-subset", "dn4il"))


def test_wrong_counts_and_unreadable_images_are_listed_together(tmp_path: Path) -> None:
    inside = trees.tiny_imagenet(tmp_path)
    (inside / "train" / trees.WNIDS[0] / "images" / f"{trees.WNIDS[0]}_1.JPEG").unlink()
    (inside / "val" / "images" / "val_2.JPEG").write_bytes(b"no image")
    annotations = inside / "val" / "val_annotations.txt"
    annotations.write_text(annotations.read_text().replace(trees.WNIDS[0], trees.WNIDS[1]))
    report = check("tiny-imagenet", tmp_path)
    assert report.train_per_class == (1, 2) and report.test_per_class == (0, 2)
    assert report.problems[:3] == [
        "Class n00000002 has 1 training images instead of 2.",
        "Class n00000001 has 2 test images instead of 1.",
        "Class n00000002 has 0 test images instead of 1.",
    ]
    assert len(report.problems) == 4 and "val_2.JPEG" in report.problems[3]


def test_missing_set_is_one_problem(tmp_path: Path) -> None:
    report = check("tiny-imagenet", tmp_path)
    assert report.classes == 0 and len(report.problems) == 1 and "efcil data get" in report.problems[0]
    with pytest.raises(UserError, match="did you mean"):
        check("tiny-imagnet", tmp_path)


def test_unequal_classes_of_your_own_are_only_noted(tmp_path: Path) -> None:
    trees.class_folders(tmp_path, ["a"], count=10)
    trees.class_folders(tmp_path, ["b"], count=5)
    report = check("folder", tmp_path)
    assert report.problems == []
    assert report.notes == [
        "The classes have unequal numbers of training images, from 4 to 6.",
        "The classes have unequal numbers of test images, from 1 to 4.",
    ]


def test_sample_depends_on_the_seed_alone(tmp_path: Path) -> None:
    trees.class_folders(tmp_path, ["a", "b"], count=40)
    for image in list((tmp_path / "a").iterdir())[::2]:
        image.write_bytes(b"damaged")
    reports = [check("folder", tmp_path, sample=3, seed=seed) for seed in (0, 0, 1, 2)]
    assert reports[0] == reports[1] and reports[0].sampled == 12
    assert len({tuple(report.problems) for report in reports}) > 1
    assert len(check("folder", tmp_path, sample=1000).problems) == checking.LISTED + 1


def test_every_damaged_file_is_named_when_all_are_decoded(tmp_path: Path) -> None:
    trees.class_folders(tmp_path, ["a", "b"], count=40)
    damaged = sorted(tmp_path / "a" / f"a_{index}.png" for index in range(30))
    for path in damaged:
        path.write_bytes(b"damaged")
    steps: list[tuple[int, int]] = []
    report = check("folder", tmp_path, sample=None, progress=lambda done, total: steps.append((done, total)))
    assert (report.sampled, report.unreadable) == (80, 30) and steps[-1] == (80, 80)
    assert sorted(problem.split("'")[1] for problem in report.problems) == [str(path) for path in damaged]


def test_a_set_that_is_not_there_is_one_sentence_without_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", "cifar100", "--data-root", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "efcil data get" in err


def test_only_what_could_be_read_counts_as_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees.class_folders(tmp_path, ["a", "b"], count=4)
    (tmp_path / "b" / "b_1.png").write_bytes(b"damaged")
    assert main(["data", "check", "folder", "--data-root", str(tmp_path), "--all"]) == 2
    assert "  7 of 8 images decoded" in capsys.readouterr().out


@pytest.mark.slow
def test_check_all_as_a_command(tmp_path: Path) -> None:
    trees.class_folders(tmp_path, ["a", "b"], count=20)
    assert run_cli("data", "check", "folder", "--data-root", tmp_path, "--all").returncode == 0
    for index in (3, 7):
        (tmp_path / "b" / f"b_{index}.png").write_bytes(b"damaged")
    done = run_cli("data", "check", "folder", "--data-root", tmp_path, "--all")
    assert done.returncode == 2 and "38 of 40 images decoded" in done.stdout
    assert "b_3.png" in done.stdout and "b_7.png" in done.stdout
    assert done.stderr.strip().endswith("efcil: folder has 2 problems, each named above; put them right.")


def test_what_was_left_out_is_noted(tmp_path: Path) -> None:
    trees.class_folders(tmp_path, ["a", "b"], count=4)
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "a" / "more").mkdir()
    report = check("folder", tmp_path)
    assert report.problems == [] and len(report.notes) == 1
    assert "left out: 1 .txt file, 1 folder inside class folders." in report.notes[0]


def test_class_without_images_where_numbers_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "EXPECTED", {})
    inside = trees.dn4il(tmp_path)
    file = inside / "real_test.txt"
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "axe" not in line))
    assert check("dn4il", tmp_path).problems == ["Class real/axe has no test images."]
