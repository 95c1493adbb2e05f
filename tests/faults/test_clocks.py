"""Clocks that are an hour off: the library between processes and the kernel, and the way back to the judge's clock."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from faults.cells.clocks import HOUR_S, Clock, library

SHOWN = "import os, time; print(time.time(), time.monotonic(), os.stat('clock').st_mtime)"


def shown(folder):
    """What a process with the library sees: the time of day, a clock of durations, and the time of the clock's file."""
    environment = {"LD_PRELOAD": str(library(folder)), "CLOCK_FILE": str(folder / "clock")}
    done = subprocess.run([sys.executable, "-c", SHOWN], cwd=folder, env=environment, capture_output=True, check=True)
    return SimpleNamespace(**dict(zip(("time", "monotonic", "written"), map(float, done.stdout.split()), strict=True)))


@pytest.mark.parametrize("ahead_s", [0, HOUR_S, -HOUR_S])
def test_a_processs_time_of_day_is_off_and_its_clock_of_durations_is_not(tmp_path, ahead_s):
    clock = Clock(tmp_path / "clock")
    clock.set(ahead_s)
    before, began = time.time(), time.monotonic()
    seen = shown(tmp_path)
    assert before + ahead_s <= seen.time <= time.time() + ahead_s
    assert began <= seen.monotonic <= time.monotonic()
    assert abs(seen.written - before) < HOUR_S / 2


def test_a_time_that_a_clock_has_shown_is_that_of_the_judge_again(tmp_path):
    clock = Clock(tmp_path / "clock")
    for ahead_s in (HOUR_S, 0, -HOUR_S, -2 * HOUR_S):
        now = time.time()
        clock.set(ahead_s)
        assert clock.real_ms((now + 1 + ahead_s) * 1000) == pytest.approx((now + 1) * 1000)
