"""Clocks that are an hour off: of producers, and of the query's processes, by a library between them and the kernel."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults.cells.registry import Cell, add
from faults.scene import Scene, now_ms

CLOCK = "clock"
HOUR_S = 3600
LASTS_S = 5.0
SOURCE = Path(__file__).parents[1] / "clock.c"
AHEAD_AT_MOST = {"log.message.timestamp.after.max.ms": str(2 * HOUR_S * 1000)}
"""Brokers refuse records that are more than an hour ahead of them."""


def library(folder: Path) -> Path:
    """The library that changes clocks, compiled; a skip where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("clocks that are off need Linux and a C compiler: install gcc")
    made = folder / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, SOURCE], check=True)
    return made


class Clock:
    """The clock of the query's processes, which differs from that of brokers, producers and the judge.

    Parameters
    ----------
    file
        Says how much, to the library.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._file.write_bytes(bytes(8))
        self._changes: list[tuple[float, int]] = []  # when, by the clock of the judge, and how far ahead from then on
        self.set(0)

    @property
    def ahead_s(self) -> int:
        return self._changes[-1][1]

    def set(self, ahead_s: int) -> None:
        """From now on the clock is so far ahead; behind, if it is below 0."""
        with self._file.open("r+b", buffering=0) as file:  # the same file: processes have mapped it
            file.write(struct.pack("=q", ahead_s))
        self._changes.append((now_ms(), ahead_s))

    def real_ms(self, shown_ms: float) -> float:
        """The time at which the clock showed this. A run is shorter than an hour, so there is one."""
        ends = [began for began, _ in self._changes[1:]] + [float("inf")]
        times = [
            (max(began - real, real - end, 0.0), real)
            for (began, ahead_s), end in zip(self._changes, ends, strict=True)
            for real in [shown_ms - ahead_s * 1000]
        ]
        return min(times)[1]


def own_clock(scene: Scene) -> None:
    """The query's processes have a clock of their own, for the time of day; durations are as ever."""
    clock = Clock(scene.directory / "clock")
    scene.room["clock"], scene.real_ms = clock, clock.real_ms
    scene.environment |= {
        "LD_PRELOAD": str(library(scene.directory)),
        "CLOCK_FILE": str(scene.directory / "clock"),
    }


def of_producers(name: str, what: str, ahead_s: int) -> None:
    """Add a cell: records have timestamps that are an hour off."""

    def happen(scene: Scene) -> None:
        assert scene.load is not None
        with scene.fault(f"{what} for {LASTS_S:.0f} s"):
            scene.load.ahead_s = ahead_s
            time.sleep(LASTS_S)  # the fault itself
            scene.load.ahead_s = 0

    add(Cell(CLOCK, name, f"{what} for {LASTS_S:.0f} s", happen, properties=AHEAD_AT_MOST))


def of_the_query(name: str, what: str, ahead_s: int) -> None:
    """Add a cell: the program is killed, and started where the clock is off; the next time it is right again."""

    def happen(scene: Scene) -> None:
        clock: Clock = scene.room["clock"]
        scene.pause(2)
        with scene.fault(f"SIGKILL of the program, then a clock that is {ahead_s - clock.ahead_s:+} s ahead"):
            scene.query.kill()
            clock.set(ahead_s - clock.ahead_s)
            scene.query.start()

    add(Cell(CLOCK, name, f"{what}; the next time the clock is right again", happen, prepare=own_clock))


def jumps(name: str, what: str, by_s: int) -> None:
    """Add a cell: the clock of the query's processes jumps."""

    def happen(scene: Scene) -> None:
        clock: Clock = scene.room["clock"]
        scene.pause()
        with scene.fault(f"the clock of the query's processes jumps by {by_s:+} s"):
            clock.set(clock.ahead_s + by_s)

    # Spark's trigger of an interval waits until its clock shows a time: an hour, where it was set back by one.
    arguments = ("--trigger", "0 seconds") if by_s < 0 else ()
    add(Cell(CLOCK, name, what, happen, prepare=own_clock, arguments=arguments))


of_producers("producers-ahead", "the producers' clocks are an hour ahead", HOUR_S)
of_producers("producers-behind", "the producers' clocks are an hour behind", -HOUR_S)
of_the_query("driver-ahead", "SIGKILL of the program, which starts again on a host an hour ahead", HOUR_S)
of_the_query("driver-behind", "SIGKILL of the program, which starts again on a host an hour behind", -HOUR_S)
jumps("clock-jumps-ahead", "the clock of the query's processes jumps ahead by an hour", HOUR_S)
jumps("clock-jumps-back", "the clock of the query's processes jumps back by an hour", -HOUR_S)
