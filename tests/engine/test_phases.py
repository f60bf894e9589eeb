"""Time by phase, with a clock of our own."""

from __future__ import annotations

import pytest

from efcil.engine import phases
from efcil.engine.phases import Phases


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(phases.time, "monotonic", lambda: now[0])
    return now


def test_a_phase_within_another_takes_its_time_away_from_it(clock: list[float]) -> None:
    phase = Phases()
    clock[0] += 50  # between phases nothing counts
    with phase("statistics"):
        clock[0] += 1
        with phase("drift"):
            clock[0] += 10
            assert phase.seconds == {"statistics": 1, "drift": 10}
        clock[0] += 2
    clock[0] += 50
    with phase("drift"):
        clock[0] += 5
    assert phase.seconds == {"statistics": 3, "drift": 15}


def test_time_before_an_interruption_is_added_and_a_failure_ends_its_phase(clock: list[float]) -> None:
    phase = Phases()
    with pytest.raises(KeyboardInterrupt), phase("training"):
        clock[0] += 4
        raise KeyboardInterrupt
    clock[0] += 9
    phase.add({"training": 6.0, "preparation": 1.5})
    assert phase.seconds == {"training": 10, "preparation": 1.5}


def test_a_device_that_works_on_alone_is_waited_for(clock: list[float]) -> None:
    def wait() -> None:
        clock[0] += 3

    phase = Phases(wait)
    with phase("training"):
        pass
    assert phase.seconds == {"training": 3}
