"""Figures from small real runs: each shows what it is there to show."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import normal
from efcil import IncrementalClassifier
from efcil.analysis.kept import columns, features
from efcil.analysis.potential import DECAY, linear_probe
from efcil.analysis.prototype_distance import prototype_distances
from efcil.analysis.runs import labelled, read_runs
from efcil.analysis.training_time import mean_seconds
from efcil.bench.run_folder import run_name
from efcil.bench.runs import Unwatched, run
from efcil.bench.scenarios import resolve
from efcil.cli import main
from efcil.engine import numerics
from efcil.errors import Notice
from efcil.paper.prototypes import class_means

SMALL = ("width=4", "stem_stride=2", "data.images_per_class=20", "stream.steps=3", "first.epochs=6")
MEMORY = ("options.statistics_view=eval",)
REBALANCED = (*MEMORY, "options.rebalancing.epochs=5")
RunFolder = Callable[..., Path]
SKIPPED = ("stream.kind=cold", "stream.first_classes=0", "stream.skip_classes=4")
WARM = ("stream.kind=warm", "stream.first_classes=4")
HELD_OUT = "data.held_out=5"
FROZEN = ("stream.kind=warm", "stream.first_classes=2", "stream.steps=1")


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The folder of a run of this method with these changes; seed 0 unless told."""
    out, made = tmp_path_factory.mktemp("runs"), {}

    def folder_of(method: str = "efc++", *changes: str, seed: int = 0, keep_states: bool = True) -> Path:
        own = {"efc++": REBALANCED, "efc": MEMORY}.get(method, ())
        config = resolve("digits-cold5", method, seed, [*SMALL, "incremental.epochs=3", *own, *changes])
        folder = out / run_name("digits-cold5", config, changes) / str(keep_states)
        if folder not in made:
            run(config, "digits-cold5", folder, Unwatched(), keep_states=keep_states)
            made[folder] = True
        return folder

    return folder_of


def figure(number: str, out: Path, *arguments: Any) -> list[dict[str, str]]:
    """The numbers of a figure as its CSV has them; its pictures must be pictures."""
    assert main(["figure", number, *map(str, arguments), "--out", str(out)]) == 0
    assert {path.suffix for path in out.iterdir()} == {".csv", ".svg", ".png"}
    (picture,) = out.glob("*.png")
    with Image.open(picture) as image:
        assert image.width > 500 and len(image.convert("RGB").getcolors(1 << 22) or []) > 20
    assert "<svg" in next(out.glob("*.svg")).read_text()
    with next(out.glob("*.csv")).open(newline="") as file:
        return list(csv.DictReader(file))


def metrics_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())  # type: ignore[no-any-return]


# 1


def test_the_linear_probe_is_the_optimum_of_its_convex_problem() -> None:
    from sklearn.linear_model import LogisticRegression

    x, y = normal(120, 5), torch.arange(120) % 3
    x[:, 0] += y
    weight = linear_probe(x, y, 3)
    probabilities = torch.softmax(x @ weight[:, :-1].T + weight[:, -1], dim=1)
    residual = probabilities - torch.nn.functional.one_hot(y, 3)
    assert torch.allclose(residual.T @ x / 120 + DECAY * weight[:, :-1], torch.zeros(3, 5).double(), atol=1e-5)
    assert torch.allclose(residual.mean(0), torch.zeros(3).double(), atol=1e-5)
    theirs = LogisticRegression(C=1 / (DECAY * 120), max_iter=2000, tol=1e-8).fit(x.numpy(), y.numpy())
    assert np.allclose(weight[:, :-1].numpy(), theirs.coef_, atol=1e-2)


def test_figure_1_is_the_gap_of_frozen_networks_to_joint_training(small_run: RunFolder, tmp_path: Path) -> None:
    frozen = [small_run("freeze", FROZEN[0], f"stream.first_classes={n}", FROZEN[2]) for n in (2, 5)]
    joint = small_run("joint", "stream.steps=1")
    rows = figure("1", tmp_path, *frozen, joint)
    assert [(row["network"], row["first_classes"]) for row in rows] == [
        ("frozen", "2"),
        ("frozen", "5"),
        ("joint", "10"),
    ]
    best = float(rows[-1]["probe_accuracy"])
    for row in rows:
        assert float(row["plasticity_potential"]) == pytest.approx(best - float(row["probe_accuracy"]), abs=1e-3)
    assert all(float(row["probe_accuracy"]) > 15 for row in rows)  # chance is 10


def test_figure_1_says_which_runs_it_needs(small_run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "1", str(small_run())]) == 2
    assert "@figure1" in capsys.readouterr().err


def test_figure_1_compares_what_is_the_same_but_for_the_method_and_the_split(
    small_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen, joint = small_run("freeze", *FROZEN), small_run("joint", "stream.steps=1")
    others = {
        "cut": small_run("finetune", "stream.tasks=1"),  # no joint training, but a stream that was cut off
        "frozen_cut": small_run("freeze", "stream.tasks=1"),
        "held_out": small_run("freeze", *FROZEN, HELD_OUT),
        "less": small_run("joint", "stream.steps=1", "stream.skip_classes=5"),
        "seed": small_run("joint", "stream.steps=1", seed=1),
        "older": shutil.copytree(joint, tmp_path / "older"),
    }
    older = {**metrics_of(joint), "numerics": 1}
    (others["older"] / "metrics.json").write_text(json.dumps(older))
    for folder in others.values():
        whole = frozen if metrics_of(folder)["method"] == "joint" else joint
        assert main(["figure", "1", str(whole), str(folder)]) == 2
        assert "@figure1" in capsys.readouterr().err
    for name, folder in {"frozen": frozen, "joint": joint, **others}.items():
        shutil.copytree(folder, tmp_path / "runs" / name)
    with pytest.warns(Notice, match="left out: ") as said:
        rows = figure("1", tmp_path / "figures", tmp_path / "runs")
    assert {row["run"] for row in rows} == {"frozen", "joint"}
    assert len([one for one in said if issubclass(one.category, Notice)]) == len(others)
    other = small_run("joint", "stream.steps=1", HELD_OUT)
    assert main(["figure", "1", str(frozen), str(joint), str(other), str(others["held_out"])]) == 2
    assert f"{frozen} and {other} are not of the same preset, images" in capsys.readouterr().err
    assert main(["figure", "1", str(frozen), str(joint), str(small_run("finetune", "stream.steps=1"))]) == 2
    assert "are both joint training of one seed" in capsys.readouterr().err


# 3


def test_figure_3_outputs_move_along_the_efm_and_not_across_it(small_run: RunFolder, tmp_path: Path) -> None:
    rows = figure("3", tmp_path, small_run())
    assert {row["panel"] for row in rows} == {"first task", "all tasks", "end"}
    clean = {(r["panel"], r["measure"]): float(r["value"]) for r in rows if float(r["strength"]) == 0}
    for row in rows:
        before, value = clean[row["panel"], row["measure"]], float(row["value"])
        if row["direction"] == "across":
            assert value == pytest.approx(before, abs=1e-4)
        elif float(row["strength"]) == 4:
            limit = 0.02 if "change" in row["measure"] else -1.0
            if row["measure"] in ("A_step", "change of probabilities"):
                assert value - before > limit if limit > 0 else value - before < limit
    metrics = metrics_of(small_run())
    assert clean["end", "A_step"] == pytest.approx(metrics["per_step_accuracy"], abs=1e-3)
    for task in range(3):
        assert clean["all tasks", f"accuracy on task {task + 1}"] == pytest.approx(
            metrics["accuracy_matrix"][2][task], abs=1e-3
        )


# 4, 8


def test_figure_4_is_the_mean_matrix_of_the_seeds(small_run: RunFolder, tmp_path: Path) -> None:
    runs = [small_run(), small_run(seed=1), small_run("efc")]
    rows = figure("4", tmp_path, *runs)
    matrices = [metrics_of(run)["accuracy_matrix"] for run in runs]
    ours = {(int(r["step"]), int(r["task"])): float(r["accuracy"]) for r in rows if r["method"] == "efc++"}
    assert ours[3, 2] == pytest.approx((matrices[0][2][1] + matrices[1][2][1]) / 2, abs=1e-3)
    theirs = {(int(r["step"]), int(r["task"])): float(r["accuracy"]) for r in rows if r["method"] == "efc"}
    assert len(theirs) == 6 and theirs[2, 2] == pytest.approx(matrices[2][1][1], abs=1e-3)


def test_figure_8_has_forgetting_and_plasticity_of_every_step(small_run: RunFolder, tmp_path: Path) -> None:
    other = small_run("efc++", "options.regularizer=fd")
    rows = figure("8", tmp_path, small_run(), other)
    assert {row["method"] for row in rows} == {"efc++ regularizer=efm", "efc++ regularizer=fd"}
    for label, folder in (("efm", small_run()), ("fd", other)):
        own = [row for row in rows if row["method"].endswith(label)]
        for row, step in zip(own, metrics_of(folder)["steps"], strict=True):
            for name in ("average_forgetting", "plasticity"):
                assert float(row[name]) == pytest.approx(step[name], abs=1e-3)


def test_damaged_settings_are_one_sentence(
    small_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(small_run(), tmp_path / "run")
    (folder / "config.yaml").write_text("[")
    assert main(["figure", "4", str(folder)]) == 2
    error = capsys.readouterr().err
    assert "config.yaml is damaged" in error and error.count("\n") == 1


# 5


def test_figure_5_is_the_drift_of_class_means_written_out(small_run: RunFolder, tmp_path: Path) -> None:
    folder = small_run()
    rows = figure("5", tmp_path, folder, small_run("efc"))
    assert {(row["method"], row["step"]) for row in rows} == {(m, s) for m in ("efc++", "efc") for s in "23"}
    (run,) = read_runs([folder])
    task = run.stream(None).task(1)
    before, after = (IncrementalClassifier.load(path) for path in run.states[:2])
    efm, held = (model._method.state()["efm"].double().numpy() for model in (after, before))
    values, vectors = np.linalg.eigh(held)
    range_of_held = vectors[:, values > 1e-7 * values.max()]
    total, along, whole = 0.0, 0.0, 0.0
    for name in task.classes:
        images = task.train.subset(torch.from_numpy(np.flatnonzero(task.train_labels == name)))
        delta = (features(after, images).double().mean(0) - features(before, images).double().mean(0)).numpy()
        total += delta @ efm @ delta / len(task.classes)
        along += float(((delta @ range_of_held) ** 2).sum()) / len(task.classes)
        whole += float((delta**2).sum()) / len(task.classes)
    shown = next(row for row in rows if (row["method"], row["step"]) == ("efc++", "2"))
    assert total > 0 and float(shown["drift"]) == pytest.approx(total, rel=1e-3)
    assert range_of_held.shape[1] == 3 and 0 < along < whole
    split = [float(shown[name]) for name in ("along_previous", "across_previous")]
    assert split == pytest.approx([along, whole - along], rel=1e-3)


def test_figure_9_takes_the_images_that_each_run_saw(small_run: RunFolder) -> None:
    whole, few = small_run(), small_run("efc++", "data.images_per_class=8")
    together = prototype_distances(read_runs([whole, few]), None)
    alone = [row for folder in (whole, few) for row in prototype_distances(read_runs([folder]), None)]
    assert [row["fixed"] for row in together] == [row["fixed"] for row in alone]
    assert len({row["fixed"] for row in together}) == 4


def test_runs_of_other_numerics_are_another_curve(small_run: RunFolder) -> None:
    (run,) = read_runs([small_run()])
    older = replace(run, metrics={**run.metrics, "numerics": 1})
    assert [one.label for one in labelled([run, older])] == [f"efc++ numerics={numerics.VERSION}", "efc++ numerics=1"]
    assert [one.label for one in labelled([older, older])] == ["efc++", "efc++"]


# 9


@pytest.mark.slow
def test_figure_9_true_means_are_at_distance_0_and_unmoved_prototypes_are_fixed_ones(
    small_run: RunFolder, tmp_path: Path
) -> None:
    oracle = figure("9", tmp_path / "a", small_run("efc++", "options.drift=oracle"))
    assert [row["classes_of_step"] for row in oracle] == ["1", "2"]
    assert all(float(row["updated"]) < 1e-4 and float(row["fixed"]) > 0.01 for row in oracle)
    kept = figure("9", tmp_path / "b", small_run("efc++", "options.drift=none"))
    assert all(row["updated"] == row["fixed"] for row in kept)


@pytest.mark.slow
def test_figure_9_compares_a_warm_start_with_the_same_stream_without_its_step_0(
    small_run: RunFolder, tmp_path: Path
) -> None:
    warm, cold = small_run("efc++", *WARM), small_run("efc++", *SKIPPED)
    orders = [json.loads((folder / "run.json").read_text())["class_order"] for folder in (warm, cold)]
    assert orders[0][1:] == orders[1]
    rows = figure("9", tmp_path, warm, cold)
    assert ">warm start, fixed<" in (tmp_path / "figure9.svg").read_text()
    assert [(row["start"], row["classes_of_step"]) for row in rows] == [
        *(("warm", step) for step in "012"),
        *(("cold", step) for step in "12"),
    ]


@pytest.mark.slow
def test_figure_9_shows_what_the_map_of_cargo_does(small_run: RunFolder, tmp_path: Path) -> None:
    """Its means are of plain images and of both networks; as they were learnt they are the true ones of that step."""
    folder = small_run("cargo", "options.rank=3")
    both = figure("9", tmp_path, folder, small_run())
    rows = [row for row in both if row["method"] == "cargo"]
    assert [row["classes_of_step"] for row in rows] == ["1", "2"] and len(both) == 4
    drawn = (tmp_path / "figure9.svg").read_text()
    assert "cold start of cargo, fixed" in drawn and "cold start of efc++, updated" in drawn
    (one,) = read_runs([folder])
    before, after = (IncrementalClassifier.load(path) for path in one.states[1:])
    task = one.stream(None).task(1)
    names = columns(before, task.train_labels)
    true = [class_means(features(model, task.train).double(), names) for model in (before, after)]
    places = slice(4, 7)
    assert torch.allclose(before._method.gaussians.means[places].double(), true[0], atol=1e-4)
    for name, means in (("fixed", before._method.gaussians.means), ("updated", after._method.gaussians.means)):
        expected = float((true[1] - means[places].double()).norm(dim=1).mean())
        assert float(rows[1][name]) == pytest.approx(expected, rel=1e-3)
    assert float(rows[1]["updated"]) < float(rows[1]["fixed"])


# 10, 12


def test_figure_10_the_rank_is_the_number_of_classes_minus_one(small_run: RunFolder, tmp_path: Path) -> None:
    rows = figure("10", tmp_path, small_run())
    assert {(row["classes"], row["rank"]) for row in rows} == {("4", "3"), ("7", "6"), ("10", "9")}
    assert {row["eta/lambda"] for row in rows} == {"0.01"} and len(rows) == 3 + 6 + 9


def test_figure_12_counts_what_belongs_to_training(small_run: RunFolder, tmp_path: Path) -> None:
    rows = figure("12", tmp_path, small_run(), small_run("efc"))
    for label, folder in (("efc++", small_run()), ("efc", small_run("efc"))):
        for step in metrics_of(folder)["steps"]:
            own = [r for r in rows if (r["method"], r["step"]) == (label, str(step["step"]))]
            assert {r["phase"]: float(r["seconds"]) for r in own} == pytest.approx(step["phase_seconds"], abs=1e-3)
    phases = ("training", "evaluation")
    invented = [
        {"method": "a", "seed": 0, "step": step, "phase": phase, "seconds": 10.0 * step}
        for step in (1, 2, 3)
        for phase in phases
    ]
    means = mean_seconds(invented)["a"]  # neither the first step nor the evaluation
    assert means["training"] == 25 and sum(means.values()) == 25


# 6, 14


def test_figures_6_and_14_of_runs_are_their_last_row_and_their_steps(small_run: RunFolder, tmp_path: Path) -> None:
    metrics = metrics_of(small_run())
    bars = figure("6", tmp_path / "6", small_run())
    assert [float(row["accuracy"]) for row in bars] == pytest.approx(metrics["accuracy_matrix"][-1], abs=1e-3)
    curves = figure("14", tmp_path / "14", small_run())
    expected = [step["per_step_accuracy"] for step in metrics["steps"]]
    assert [float(row["per_step_accuracy"]) for row in curves] == pytest.approx(expected, abs=1e-3)
    warm = figure("16", tmp_path / "16", small_run("efc++", *WARM))
    assert [row["step"] for row in warm] == ["0", "1", "2", "3"]


# 11


def test_figure_11_is_of_runs_that_differ_in_nothing_but_lambda_eta_and_seed(
    small_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [small_run(), small_run("efc++", "options.eta=1"), small_run(seed=1)]
    rows = {float(row["eta"]): row for row in figure("11", tmp_path, *runs)}
    assert {eta: row["seeds"] for eta, row in rows.items()} == {0.1: "2", 1: "1"}
    ends = [metrics_of(folder)["per_step_accuracy"] for folder in (runs[0], runs[2])]
    assert float(rows[0.1]["per_step_accuracy"]) == pytest.approx(sum(ends) / 2, abs=1e-3)
    assert main(["figure", "11", str(runs[0]), str(small_run("efc"))]) == 2
    assert "efc++ and efc on digits-cold5 differ in more than λ, η and seed;" in capsys.readouterr().err


# What cannot be drawn


def test_a_run_without_states_gets_the_command_to_make_them(
    small_run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = small_run(keep_states=False, seed=1)
    for number in ("3", "5", "9"):
        assert main(["figure", number, str(folder)]) == 2
        assert "--keep-states" in capsys.readouterr().err


def test_methods_without_an_efm_are_named(small_run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (small_run("finetune"), small_run("finetune", keep_states=False)):
        for number in ("3", "5", "9", "10", "11", "spectrum"):
            assert main(["figure", number, str(folder)]) == 2
            able = "cargo, efc++, efc, ceos-acb do." if number == "9" else "give runs of efc++ or efc."
            assert capsys.readouterr().err.endswith(f"{able}\n")


def test_of_a_folder_what_does_not_fit_is_left_out_and_what_is_named_must_fit(
    small_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    whole, bare, other = small_run(), small_run(keep_states=False, seed=1), small_run("finetune")
    for name, folder in (("whole", whole), ("bare", bare), ("other", other)):
        shutil.copytree(folder, runs / name)
    reasons = {"3": 2, "5": 2, "9": 2, "10": 1, "11": 1}
    for number, count in reasons.items():
        with pytest.warns(Notice, match="left out: The run in") as said:
            rows = figure(number, tmp_path / number, runs)
        assert len([one for one in said if issubclass(one.category, Notice)]) == count and rows
    capsys.readouterr()
    with pytest.warns(Notice, match="left out: .*other is of finetune"):
        assert main(["figure", "spectrum", str(runs), "--json"]) == 0
    assert {row["run"] for row in json.loads(capsys.readouterr().out)} == {"whole", "bare"}
    assert main(["figure", "10", str(runs), str(runs / "other")]) == 2
    shutil.rmtree(runs / "whole"), shutil.rmtree(runs / "bare")
    assert main(["figure", "10", str(runs)]) == 2  # nothing is left
    assert "which has no Empirical Feature Matrix" in capsys.readouterr().err


def test_a_run_whose_method_or_settings_are_not_at_hand_is_left_out_by_name(
    small_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(small_run(), runs / "whole")
    settings = (small_run() / "config.yaml").read_text()
    changed = {
        "elsewhere": settings.replace("method: efc++", "method: not_here:Mine"),
        "gone": settings.replace("method: efc++", "method: nocil"),
        "field": settings.replace("  width: 4", "  foo: 4"),
        "option": settings.replace("    eta: 0.1", "    foo: 0.1"),
    }
    for name, text in changed.items():
        assert text != settings
        shutil.copytree(small_run(), runs / name)
        (runs / name / "config.yaml").write_text(text)
        assert main(["figure", "4", str(runs / name)]) == 2
        assert f"The run in {runs / name} cannot be looked at here: The" in capsys.readouterr().err
    with pytest.warns(Notice, match="left out: The run in") as said:
        assert len(figure("4", tmp_path / "figures", runs)) == 6
    assert len([one for one in said if issubclass(one.category, Notice)]) == len(changed)


def test_a_run_with_a_damaged_state_is_left_out_by_name(
    small_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    for name, seed in (("damaged", 0), ("whole", 1)):
        shutil.copytree(small_run(seed=seed), runs / name)
    for path in (runs / "damaged" / "state.efcil", runs / "damaged" / "states" / "step-1.efcil"):
        path.write_bytes(path.read_bytes()[:-1])
    for number in ("3", "5", "9"):
        with pytest.warns(Notice, match=r"left out: .*damaged.states.step-1.efcil is damaged"):
            assert figure(number, tmp_path / number, runs)
    capsys.readouterr()
    with pytest.warns(Notice, match=r"left out: .*damaged.state.efcil is damaged"):
        assert main(["figure", "spectrum", str(runs), "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["whole"]
    assert main(["figure", "9", str(runs / "damaged")]) == 2
    assert "step-1.efcil is damaged" in capsys.readouterr().err


def test_a_run_of_one_class_has_no_spectrum(small_run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder = small_run("efc++", "stream.steps=10", "stream.tasks=1")
    for number in ("10", "spectrum"):
        assert main(["figure", number, str(folder)]) == 2
        assert f"The run in {folder} has learnt a single class" in capsys.readouterr().err


def test_the_same_run_in_two_folders_counts_once(small_run: RunFolder, tmp_path: Path) -> None:
    for name, folder in (("a", small_run()), ("b", small_run()), ("c", small_run(keep_states=False, seed=1))):
        shutil.copytree(folder, tmp_path / "runs" / name)
    with pytest.warns(Notice, match="left out: .*b, which is the run of .*a again"):
        rows = figure("17", tmp_path / "figures", tmp_path / "runs")
    assert {row["seeds"] for row in rows} == {"2"}


def test_mixed_scenarios_are_refused(small_run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    others = {WARM: "stream.kind, stream.first_classes, classes_per_task", (HELD_OUT,): "data.held_out"}
    for number in ("4", "5", "8", "12"):
        for changes, names in others.items():
            assert main(["figure", number, str(small_run()), str(small_run("efc++", *changes))]) == 2
            assert f"of different scenarios (not the same {names});" in capsys.readouterr().err


def test_what_runs_of_a_panel_have_seen_is_in_their_labels_where_it_differs(
    small_run: RunFolder, tmp_path: Path
) -> None:
    runs = [small_run("finetune"), small_run("freeze", HELD_OUT), small_run("joint", "stream.tasks=2")]
    labels = {"finetune held_out=0", "freeze held_out=5", "joint held_out=0 tasks=2"}
    for number in ("6", "14"):
        assert {row["method"] for row in figure(number, tmp_path / number, *runs)} == labels
    assert [run.label for run in read_runs([small_run("finetune"), small_run("efc")])] == ["finetune", "efc"]


def test_two_presets_of_one_file_name_are_two_curves(small_run: RunFolder, tmp_path: Path) -> None:
    for seed, width in ((0, 4), (1, 8)):
        folder = shutil.copytree(small_run("finetune", f"width={width}", seed=seed), tmp_path / "runs" / str(seed))
        metrics = {**metrics_of(folder), "preset": f"{tmp_path}/{seed}/mine.yaml"}
        (folder / "metrics.json").write_text(json.dumps(metrics))
    rows = figure("14", tmp_path / "figures", tmp_path / "runs")
    assert {(row["preset"], row["method"], row["seeds"]) for row in rows} == {
        ("mine", "finetune width=4", "1"),
        ("mine", "finetune width=8", "1"),
    }


def test_a_folder_of_runs_stands_for_its_finished_runs(
    small_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, method in enumerate(("efc++", "finetune", "efc++")):
        shutil.copytree(small_run(method), tmp_path / "runs" / str(place))
    metrics = {**metrics_of(small_run()), "finished": False}
    (tmp_path / "runs" / "2" / "metrics.json").write_text(json.dumps(metrics))
    with pytest.warns(Notice, match="left out: The run in .* is not finished"):
        rows = figure("4", tmp_path / "figures", tmp_path / "runs")
    assert {row["method"] for row in rows} == {"efc++", "finetune"}
    capsys.readouterr()
    shutil.rmtree(tmp_path / "runs" / "1")
    with pytest.warns(Notice, match="left out"):
        assert main(["figure", "spectrum", str(tmp_path / "runs"), "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["0"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["4", "nowhere"], "There is no run nowhere"),
        (["6"], "one of the two"),
        (["17", "somewhere", "--preset", "digits-cold5"], "one of the two"),
        (["16", "--preset", "digits-cold5"], "--methods is missing"),
        (["11", "--preset", "digits-cold5", "--results", "nothing.csv"], "efcil bench"),
    ],
)
def test_missing_sources_get_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_an_unfinished_run_and_a_strange_ending_get_one_sentence(
    small_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", "4", str(small_run()), "--out", str(tmp_path / "a.xyz")]) == 2
    assert "a.xyz cannot be drawn" in capsys.readouterr().err
    half = tmp_path / "half"
    half.mkdir()
    (half / "metrics.json").write_text(json.dumps({**metrics_of(small_run()), "finished": False}))
    assert main(["figure", "4", str(half)]) == 2
    assert "--resume" in capsys.readouterr().err


def test_a_file_name_is_that_of_all_files_and_json_has_the_numbers(
    small_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", "4", str(small_run()), "--out", str(tmp_path / "talk.png"), "--json"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"talk.csv", "talk.svg", "talk.png"}
    assert len(json.loads(capsys.readouterr().out)) == 6
