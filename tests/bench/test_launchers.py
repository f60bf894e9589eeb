"""Campaigns through submitit: for real on this machine, and on a Slurm that only the commands of Slurm play.

No Slurm is at hand in the tests. What submitit calls of it (sbatch, srun, sacct, scancel) are small programs here that
run an array job on this machine, so that everything on our side and on submitit's is what a cluster sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_campaign import QUICK, metrics, wait_for

from conftest import cli_command, cli_environment
from efcil.bench.campaign import cells
from efcil.bench.launchers import launch, local_launcher, slurm_launcher, slurm_parameters
from efcil.bench.results import append_result, read_results
from efcil.cli import main
from efcil.errors import UserError

GOOD, BAD = f"finetune:{QUICK}", f"finetune:{QUICK},first.lr=1e30"


@pytest.mark.slow
def test_local_jobs_skip_what_is_done_and_a_crash_stops_no_other(tmp_path: Path) -> None:
    table, out = tmp_path / "results" / "runs.csv", tmp_path / "runs"
    todo = cells(["digits-cold5"], [GOOD, BAD], [0]) + cells(["digits-cold5"], [GOOD], [1])
    append_result(table, todo[2], metrics(64.0))
    seen = []
    good, bad, done = launch(
        todo, out, table, None, local_launcher(out / "submitit", 2), lambda jobs: seen.append([j.status for j in jobs])
    )
    assert (good.status, bad.status, done.status) == ("done", "failed", "done")
    assert "The network stopped giving numbers" in bad.message  # the run's own sentence
    assert seen[0] == ["running", "running", "done"] and not done.folder.exists()
    assert set(read_results(table)) == {todo[0].identity, todo[2].identity}
    assert (good.folder / "state.efcil").exists() and (good.folder / "output.txt").exists()


COMMAND = ("bench", "--presets", "digits-cold5", "--methods", "finetune:width=8,first.epochs=200,checkpoint_seconds=0")


@pytest.mark.slow
def test_an_interrupted_campaign_takes_its_local_jobs_with_it_and_goes_on_later(tmp_path: Path) -> None:
    where = ("--launcher", "local", "--out", tmp_path / "runs", "--results", tmp_path / "runs.csv")
    process = subprocess.Popen(
        cli_command(*COMMAND, *where), stderr=subprocess.PIPE, text=True, env=cli_environment(), preexec_fn=deaf
    )
    wait_for(lambda: any(tmp_path.glob("runs/*/checkpoint.efcil")), seconds=1200)  # three processes have to start
    process.terminate()
    assert "interrupted; the same command goes on" in process.communicate(timeout=600)[1]
    assert process.returncode == 130
    (checkpoint,) = tmp_path.glob("runs/*/checkpoint.efcil")
    written = checkpoint.stat().st_mtime_ns
    time.sleep(1.5)  # several epochs, if anybody were still training
    assert checkpoint.stat().st_mtime_ns == written
    # What goes on is the folder of the run, which any campaign finds: test_runs.py has that it ends the same.


def deaf() -> None:
    """Ctrl-C is ignored, as a shell has it for what runs in the background."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.slow
def test_a_launcher_and_plain_processes_do_nothing_twice(tmp_path: Path) -> None:
    table, out = tmp_path / "results" / "runs.csv", tmp_path / "runs"
    asked = ["--presets", "digits-cold5", "--methods", GOOD, "--seeds", "0-1", "--workers", "1"]
    where = ["--out", out, "--results", table]
    started = [
        subprocess.Popen(cli_command("bench", *asked, *where, *more), env=cli_environment(), stdout=subprocess.DEVNULL)
        for more in ([], ["--launcher", "local"])
    ]
    assert [process.wait(timeout=1800) for process in started] == [0, 0]
    wanted = cells(["digits-cold5"], [GOOD], [0, 1])
    assert list(read_results(table)) == [cell.identity for cell in wanted]
    for cell in wanted:
        assert (out / cell.name / "log.txt").read_text().count("2 tasks with") == 1


# Slurm

SBATCH = """
import os, re, subprocess, sys
script = open(sys.argv[1]).read()
last = int(re.search(r"--array=0-(\\d+)", script)[1])
open("sbatch.txt", "w").write(script)
if os.fork():
    print("Submitted batch job 7")
    sys.exit()
os.setsid()
for stream in (0, 1, 2):
    os.dup2(os.open(os.devnull, os.O_RDWR), stream)
for index in range(last + 1):
    names = {"SLURM_JOB_ID": str(70 + index), "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(index)}
    names |= {"SLURM_CPUS_PER_TASK": "1"}
    job = subprocess.Popen(["bash", sys.argv[1]], env={**os.environ, **names}, start_new_session=True)
    open(f"{index}.pid", "w").write(str(job.pid))
    job.wait()
    open(f"{index}.over", "w")
"""
SRUN = """
import os, sys
words = sys.argv[2:]  # after --unbuffered: --output FILE --error FILE, then the command
log = words[words.index("--error") + 1].replace("%A", "7").replace("%a", os.environ["SLURM_ARRAY_TASK_ID"])
os.dup2(os.open(log.replace("%t", "0"), os.O_WRONLY | os.O_CREAT), 2)
os.execv(words[4], words[4:])
"""
SACCT = """
import os
print("JobID|State|NodeList")
for index in range(9):
    over, begun = (os.path.exists(f"{index}.{what}") for what in ("over", "pid"))
    print(f"7_{index}|{'COMPLETED' if over else 'RUNNING' if begun else 'PENDING'}|here")
"""
SCANCEL = """
import os, signal, sys
open("scancel.txt", "a").write(" ".join(sys.argv[1:]) + "\\n")
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands of Slurm, as far as submitit uses them; they work in the current folder."""
    for name, code in {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT, "scancel": SCANCEL}.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_slurm_gets_one_array_with_a_job_per_cell(slurm: Path) -> None:
    table, out = slurm / "results" / "runs.csv", slurm / "runs"
    todo = cells(["digits-cold5"], [BAD, GOOD], [0]) + cells(["digits-cold5"], [GOOD], [1])
    append_result(table, todo[2], metrics(64.0))
    asked = slurm_parameters(["partition=gpu", "time=90", "gpus-per-node=1", "additional_parameters={nice: 5}"])
    states: set[str] = set()
    launcher = slurm_launcher(out / "submitit", asked, 1, len(todo))
    jobs = launch(todo, out, table, None, launcher, lambda jobs: states.update(job.status for job in jobs))
    assert [job.status for job in jobs] == ["failed", "done", "done"]
    assert "The network stopped giving numbers" in jobs[0].message
    assert set(read_results(table)) == {cell.identity for cell in todo[1:]}
    script = (slurm / "sbatch.txt").read_text()
    for line in (
        "array=0-1%1",
        "partition=gpu",
        "time=90",
        "gpus-per-node=1",
        "cpus-per-task=1",
        "job-name=efcil",
        "nice=5",
    ):
        assert f"#SBATCH --{line}\n" in script
    assert "queued" in states  # the second waited for the first


def test_an_interrupted_campaign_cancels_its_array(slurm: Path) -> None:
    todo = cells(["digits-cold5"], [f"finetune:{QUICK},first.epochs=100000"], [0, 1])

    def interrupt(jobs: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(todo, slurm / "runs", slurm / "r.csv", None, slurm_launcher(slurm / "submitit", {}, None, 2), interrupt)
    assert (slurm / "scancel.txt").read_text().split() == ["7_0", "7_1"]
    assert "--array=0-1%2\n" in (slurm / "sbatch.txt").read_text()
    wait_for((slurm / "0.pid").exists)
    stop_array(slurm)


def stop_array(folder: Path) -> None:
    """What scancel would have done."""
    import signal

    for index in (0, 1):
        wait_for((folder / f"{index}.pid").exists)
        wait_for(lambda index=index: (folder / f"{index}.pid").read_text() != "")
        os.killpg(int((folder / f"{index}.pid").read_text()), signal.SIGKILL)
        wait_for((folder / f"{index}.over").exists)


def test_when_its_time_is_up_a_job_goes_back_into_the_queue(tmp_path: Path) -> None:
    from efcil.bench.launchers import CellWork

    (cell,) = cells(["digits-cold5"], [GOOD], [0])
    work = CellWork(cell, tmp_path, tmp_path / "r.csv", None)
    assert work.checkpoint().function == work  # submitit hands this to scontrol requeue


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["partitoin=gpu"], "no Slurm parameter called 'partitoin'; did you mean partition"),
        (["time=2:00:00"], "--slurm time takes minutes, such as time=120, not '2:00:00'"),
        (["partition"], "--slurm takes name=value, such as partition=gpu, not 'partition'"),
    ],
)
def test_what_slurm_does_not_know_is_refused(words: list[str], sentence: str, slurm: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        slurm_launcher(slurm / "submitit", slurm_parameters(words), None, 3)
    assert not (slurm / "submitit").exists()


def test_without_slurm_or_submitit_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = ["bench", "--presets", "digits-cold5", "--methods", GOOD, "--out", str(tmp_path / "runs")]
    where = ["--results", str(tmp_path / "runs.csv"), "--launcher"]
    assert main([*asked, *where, "slurm"]) == 2
    assert "There is no Slurm here (no srun)" in capsys.readouterr().err
    assert main([*asked, *where, "local", "--slurm", "partition=gpu"]) == 2
    assert "it goes with --launcher slurm" in capsys.readouterr().err
    assert main([*asked, *where, "local", "--workers", "0"]) == 2
    assert "--workers" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "submitit", None)
    for launcher in ("local", "slurm"):
        assert main([*asked, *where, launcher]) == 2
        error = capsys.readouterr().err
        assert "pip install 'efcil[cluster]'" in error and error.count("\n") == 1
    assert not (tmp_path / "runs").exists()
