"""Several processes learn what one would: real processes that talk by gloo, also as two hosts, also when one is killed.

together.py is what each process does; the quick test starts two of them by hand, the slow ones use torchrun.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch import distributed as dist

from conftest import make_blobs, missing, write_class_folders
from efcil.engine import distributed, state
from efcil.methods import METHODS

SCRIPT = Path(__file__).with_name("together.py")
SOURCE = Path(distributed.__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LONGEST = 1800  # seconds of a slow test, on a machine that is busy

# Cases that do not keep a promise to the letter, how far they may be off, and why.
CLOSE = 1e-10  # relative, of everything that is kept after a lesson from the same start, in float64
NOT_AS_CLOSE: dict[str, tuple[float, str]] = {
    "efc dual-projection": (1e-6, "it divides by what few images leave of a direction"),
}
POINTS = 0.5  # of final accuracy on the digits; in float64 nothing but a mistake moves it
FURTHER: dict[str, tuple[float, str]] = {}


def free_port() -> int:
    """Below those that the system gives to whoever wants any, so that it is still free seconds later."""
    for _ in range(100):
        port = 10_000 + secrets.randbelow(20_000)
        with closing(socket.socket()) as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def environment(**more: str) -> dict[str, str]:
    """As now, with this code and one thread, and nothing of a job that these tests may run in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
    return {**kept, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **more}


def started_by_hand(*commands: list[str]) -> list[subprocess.Popen[str]]:
    """Processes with the environment that torchrun gives them, which itself takes some seconds to start."""
    port, count = str(free_port()), len(commands)
    common = {"TORCHELASTIC_RUN_ID": "test", "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, *command],
            env=environment(**common, RANK=str(rank), LOCAL_RANK=str(rank)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, command in enumerate(commands)
    ]


def finished(processes: list[subprocess.Popen[str]], seconds: float = LONGEST) -> list[tuple[int, str, str]]:
    """Exit code, output and complaints of each; none is left behind."""
    try:
        said = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, out, err) for process, (out, err) in zip(processes, said, strict=True)]


def torchrun(count: int, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TORCHRUN, "--standalone", "--nproc-per-node", str(count), *options, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )


# Quick


def test_one_process_shares_nothing_out() -> None:
    with distributed.processes(), distributed.together():
        assert (distributed.rank(), distributed.world(), distributed.is_first()) == (0, 1, True)
        assert distributed.from_first(lambda: 7) == 7
        assert list(distributed.dealt([1, 2, 3])) == [1, 2, 3] and distributed.share(5) == (0, 5)
    assert not distributed.launched() and not distributed.restarted()


def test_a_single_process_that_torchrun_has_started_again_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may be left alone when the others are gone; --resume is for whoever starts it by hand."""
    for name, value in {"RUN_ID": "test", "RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert distributed.restarted() and not distributed.launched()


def test_shares_are_all_rows_once_and_differ_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for world in range(1, 9):
        for total in range(world, 40):
            bounds = []
            for rank in range(world):
                monkeypatch.setattr(distributed, "_job", distributed.Job(rank, world, None))
                with distributed.together():
                    bounds.append(distributed.share(total))
            assert [bounds[0][0], bounds[-1][1]] == [0, total]
            assert all(a[1] == b[0] for a, b in pairwise(bounds))
            assert {end - start for start, end in bounds} <= {total // world, -(-total // world)}


def test_two_processes_are_one_network(tmp_path: Path) -> None:
    """Features, gradients of weights and images, and BatchNorm, as one process has them, in float64."""
    ended = finished(started_by_hand(*[[str(SCRIPT), "network", str(tmp_path)]] * 2))
    assert [code for code, _, _ in ended] == [0, 0], ended
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        for name, value in found.items():
            if "images" in name:
                assert value is True if name.endswith("same") else value < 1e-10, (name, value)
        assert found["gathered"]
        assert found["by turns"] == [[float(job)] * 2 for job in range(5)]
        assert found["aligned"] == [0.0] * 3
        assert found["alone"] == found["outside"] == [0, 1]
        assert found["dropout"] and found["after dropout"] and found["masks"] == 4
        assert found["from first"] == {"rank": 0}
        assert found["copy"] == ["by 0", rank == 0, False] and found["copy stays"] == (rank == 0)


@pytest.mark.slow
def test_a_process_that_fails_says_why_once_and_takes_the_others_with_it(tmp_path: Path) -> None:
    """The images are missing on the second host only; the first waits for it, but not for ever."""
    write_class_folders(tmp_path / "images", *make_blobs(["ant", "bee", "cat", "dog"], 5))
    preset = {"description": "blobs", "data": {"name": "folder"}, "stream": {"kind": "cold", "steps": 2}}
    (tmp_path / "blobs.yaml").write_text(yaml.safe_dump({**preset, "classifier": {"width": 4, "image_size": 8}}))
    arguments = ["-m", "efcil", "run", str(tmp_path / "blobs.yaml"), "--out", str(tmp_path / "runs"), "--data-root"]
    there, nowhere = [*arguments, str(tmp_path / "images")], [*arguments, str(tmp_path / "nowhere")]
    (first, first_out, first_err), (second, _, second_err) = finished(started_by_hand(there, nowhere))
    assert (first, second) == (1, 2)
    assert first_out.strip() == first_err == ""  # but for an empty progress bar
    assert second_err.startswith(f"efcil: process 2 of 2, on {socket.gethostname()}: ")
    assert "nowhere" in second_err and second_err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


# Slow


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_a_lesson_of_every_method_is_that_of_one_process(count: int, tmp_path: Path) -> None:
    """What is kept after it, network, sums and all, and the same bits in every process."""
    ended = torchrun(count, str(SCRIPT), "lessons", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    for rank in range(count):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert METHODS.keys() <= found.keys()
        far = {
            (case, name): value
            for case, told in found.items()
            for name, value in told.items()
            if (value is not True if name.endswith("same") else value > NOT_AS_CLOSE.get(case, (CLOSE, ""))[0])
        }
        assert not far


@pytest.fixture(scope="module")
def accuracies_of_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    folder = tmp_path_factory.mktemp("one")
    command = [sys.executable, str(SCRIPT), "streams", str(folder)]
    subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=LONGEST)
    return dict(json.loads((folder / "0.json").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_every_method_is_as_accurate_as_with_one_process(
    count: int, accuracies_of_one: dict[str, list[float]], tmp_path: Path
) -> None:
    ended = torchrun(count, str(SCRIPT), "streams", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    found = json.loads((tmp_path / "0.json").read_text())
    assert found.keys() == METHODS.keys() == accuracies_of_one.keys()
    gaps = {method: abs(found[method][0] - accuracies_of_one[method][0]) for method in METHODS}
    assert not {method: gap for method, gap in gaps.items() if gap > FURTHER.get(method, (POINTS, ""))[0]}


RUN = ("-m", "efcil", "run", "digits-cold5", "--method", "efc++", "--json")
SETTINGS = (
    *("--set", "width=8", "--set", "first.epochs=3", "--set", "incremental.epochs=3", "--set", "device=cpu"),
    *("--set", "checkpoint_seconds=0", "--set", "options.rebalancing.epochs=3", "--set", "data.images_per_class=30"),
)


def outcome(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The only run in a folder: what was measured and what is kept, but for times."""
    (folder,) = out.iterdir()
    metrics = json.loads((folder / "metrics.json").read_text())
    tensors, _ = state.read(folder / "state.efcil", "classifier")
    measured = {name: metrics[name] for name in ("accuracy_matrix", "confusion_matrix", "kept_bytes", "finished")}
    return measured, {name: tensor.tolist() for name, tensor in tensors.items()}


@pytest.fixture(scope="module")
def two_unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    out = tmp_path_factory.mktemp("unbroken")
    ended = torchrun(2, *RUN, *SETTINGS, "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("\n") == 1 and json.loads(ended.stdout)["finished"]  # said once
    return outcome(out)


def worker(job: subprocess.Popen[str], rank: int) -> int:
    """The process id of a worker of this torchrun."""
    for child in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it may have children that come and go
            if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return int(child)
    raise LookupError(rank)


def test_processes_that_have_gone_are_not_called() -> None:
    """torchrun keeps what they have left in its store, and one of the new ones comes first."""
    store, long = dist.HashStore(), timedelta(seconds=LONGEST)
    with ThreadPoolExecutor(3) as pool:
        gone = [pool.submit(distributed.part_of_these, store, rank, 2, long) for rank in range(2)]
        for rank, part in enumerate(gone):
            part.result().set("address", f"of the {rank} that has gone")
        first = pool.submit(distributed.part_of_these, store, 0, 2, long)
        assert wait([first], timeout=0.3).not_done, "it took one that has gone for the other one"
        second = pool.submit(distributed.part_of_these, store, 1, 2, long)
        assert not first.result().check(["address"])
        first.result().set("address", "new")
        assert second.result().get("address") == b"new"
    with pytest.raises(RuntimeError, match="not all have come"):
        distributed.part_of_these(store, 0, 2, timedelta(seconds=0.2))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_after_one_process_is_killed_the_job_starts_again_and_ends_the_same(
    rank: int, two_unbroken: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", *RUN, *SETTINGS]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        until = time.monotonic() + LONGEST
        while not (list(tmp_path.glob("*/state.efcil")) and list(tmp_path.glob("*/checkpoint.efcil"))):
            assert job.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        os.kill(worker(job, rank), signal.SIGKILL)
        out, err = job.communicate(timeout=LONGEST)
    assert job.returncode == 0, err
    assert json.loads(out)["finished"]
    assert outcome(tmp_path) == two_unbroken


@pytest.mark.slow
def test_a_process_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    ended = torchrun(2, str(SCRIPT), "silence", str(tmp_path))
    assert ended.returncode == 1
    said = [line for line in ended.stderr.splitlines() if "LostProcess:" in line]
    assert len(said) == 1 and "does not answer" in said[0] and "--max-restarts" in said[0]


@pytest.fixture
def two_hosts() -> Iterator[list[list[str]]]:
    """How to run a command on each of two hosts that see nothing but each other: network namespaces."""
    names = [f"efcil{os.getpid()}{side}" for side in "ab"]
    links = [f"ef{os.getpid()}{side}"[:15] for side in "ab"]
    if shutil.which("ip") is None or os.geteuid() != 0:
        missing("network namespaces need root and the command ip of iproute2")
    if subprocess.run(["ip", "netns", "add", names[0]], capture_output=True).returncode:
        pytest.skip("network namespaces are not allowed here")  # by whoever runs this machine; nothing can be installed
    try:
        commands = [["netns", "add", names[1]], ["link", "add", links[0], "type", "veth", "peer", "name", links[1]]]
        for side in range(2):
            within = ["-n", names[side]]
            commands += [["link", "set", links[side], "netns", names[side]], [*within, "link", "set", "lo", "up"]]
            commands += [[*within, "addr", "add", f"10.77.0.{side + 1}/24", "dev", links[side]]]
            commands += [[*within, "link", "set", links[side], "up"]]
        for command in commands:
            subprocess.run(["ip", *command], check=True, capture_output=True)
        yield [
            ["ip", "netns", "exec", name, "env", f"GLOO_SOCKET_IFNAME={link}"]
            for name, link in zip(names, links, strict=True)
        ]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)  # takes its end of the link with it


@pytest.mark.slow
def test_two_hosts_learn_what_two_processes_of_one_host_do(
    two_hosts: list[list[str]], two_unbroken: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    """They share no files: only the first has a run folder."""
    nodes = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "10.77.0.1", "--master-port", "29517"]
    processes = [
        subprocess.Popen(
            [*host, *TORCHRUN, *nodes, "--node-rank", str(rank), *RUN, *SETTINGS, "--out", str(tmp_path / str(rank))],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate(two_hosts)
    ]
    ended = finished(processes)
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert json.loads(ended[0][1])["finished"] and ended[1][1] == ""
    assert outcome(tmp_path / "0") == two_unbroken
    assert not (tmp_path / "1").exists()
