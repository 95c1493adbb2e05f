"""Faults of the driver: all processes of the query's program, its JVM, or Spark's reader process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from faults.cells.registry import MINUTES, Cell, add, cell
from faults.evidence import GROUPKAFKA
from faults.programs.points import POINTS
from faults.running import Query
from faults.scene import Scene

DRIVER = "driver"


def killed_at(point: str, name: str, who: str, kill: Callable[[Query], None]) -> Cell:
    """A cell: the whole program, or its JVM, is killed at one of the points, and started again."""

    def happen(scene: Scene) -> None:
        query = scene.query
        scene.pause()
        query.arm(point)
        query.wait_for(lambda: query.at(point), within=60)
        with scene.fault(f"SIGKILL of the {who}, {POINTS[point]}"):
            kill(query)
            query.start()

    sink = "overwrite" if point == "sink" else "parquet"
    who_exactly = "all processes of the program" if who == "program" else f"the {who} alone"
    what = f"SIGKILL of {who_exactly}: {POINTS[point]}"
    return Cell(DRIVER, f"{name}-{point}", what, happen, sources=(GROUPKAFKA,), sink=sink)


def jvm_killed(query: Query) -> None:
    """SIGKILL of its JVM. Python processes that stand at a point go on, until they notice."""
    os.kill(query.program.jvm(), signal.SIGKILL)
    query.disarm()
    query.program.ends(60)
    query.ended_by_itself(wanted=True)


for each in POINTS:
    add(killed_at(each, "driver-kill", "program", Query.kill))
for each in POINTS:
    add(killed_at(each, "jvm-kill", "JVM", jvm_killed))


@cell(DRIVER, "SIGKILL of all processes of the program, at a random moment")
def driver_kill(scene: Scene) -> None:
    scene.pause(2)
    with scene.fault("SIGKILL of the program"):
        scene.query.kill()
        scene.query.start()


@cell(DRIVER, "SIGKILL of all processes of the program, at a random moment; a sink that only appends", sink="append")
def driver_kill_append(scene: Scene) -> None:
    driver_kill(scene)


@cell(DRIVER, "SIGKILL of the JVM alone, at a random moment: its Python processes live on for a while")
def jvm_kill(scene: Scene) -> None:
    scene.pause(2)
    with scene.fault("SIGKILL of the JVM"):
        jvm_killed(scene.query)
        scene.query.start()


@cell(DRIVER, "SIGKILL of Spark's reader process, at a random moment", sources=(GROUPKAFKA,))
def reader_kill(scene: Scene) -> None:
    scene.pause(2)
    with scene.fault("SIGKILL of the reader process", may_end=True):
        query = scene.query
        os.kill(query.program.reader(), signal.SIGKILL)
        query.program.ends(60)
        query.ended_by_itself(wanted=True)
        query.start()


@cell(DRIVER, "SIGTERM of the program, at a random moment")
def driver_term(scene: Scene) -> None:
    scene.pause(2)
    with scene.fault("SIGTERM of the program"):
        scene.query.note_interrupted()
        scene.left += scene.query.stop()
        scene.query.start()


@cell(
    DRIVER,
    "SIGSTOP of all processes of the program until its session is over (3 s), then SIGCONT",
    session_s=3.0,
)
def driver_pause(scene: Scene) -> None:
    scene.pause()
    with scene.fault("SIGSTOP of the program for 5 s", may_end=False):
        scene.query.program.signal_all(signal.SIGSTOP)
        time.sleep(5)  # the fault itself: longer than the session
        scene.query.program.signal_all(signal.SIGCONT)


@cell(
    DRIVER,
    "SIGSTOP of the program at a random moment; another process of the query takes over, then SIGCONT: a zombie",
    count=MINUTES,
    at_once=5,
)
def driver_zombie(scene: Scene) -> None:
    query = scene.query
    scene.pause()
    with scene.fault("SIGSTOP of the program, and a second process of it", may_end=True):
        zombie = query.program
        zombie.signal_all(signal.SIGSTOP)
        query.note_interrupted()
        query.start()
        zombie.signal_all(signal.SIGCONT)
        scene.wait(lambda: zombie.process.poll() is not None or not query.running, within=120)
        if zombie.process.poll() is None:
            zombie.kill()
