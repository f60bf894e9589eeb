"""One holder at a time, and a lock that dies with its process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from efcil.engine.locks import locked
from efcil.errors import UserError

HOLD = """
import sys, time
from pathlib import Path
from efcil.engine.locks import locked
with locked(Path(sys.argv[1]), ""):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_holder_is_refused_with_the_sentence(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", "busy"),
        pytest.raises(UserError, match=r"^busy$"),
        locked(tmp_path / "lock", "busy"),
    ):
        pass
    with locked(tmp_path / "lock", "busy"):  # and is free again afterwards
        pass


def test_a_killed_process_lets_go(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(UserError), locked(tmp_path / "lock", "busy"):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with locked(tmp_path / "lock", "busy"):
        pass
