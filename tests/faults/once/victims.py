"""What a kill hits: a program with several queries, its JVM alone, its Python processes, or the only broker."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from faults.once.stage import Stage
from faults.processes import Program
from spark_kafka_group.testing import wait_until

ENDS_SOON_S = 60.0


def program_killed(stage: Stage) -> None:
    stage.program.kill()
    stage.start()


def jvm_killed(stage: Stage) -> None:
    """What decides and ends is a process of its own: it lives on, and goes on before or behind the next one's plan."""
    name, program = stage.name, stage.program
    os.kill(program.jvm(), signal.SIGKILL)
    if stage.rng.random() < 0.5:
        stage.launch()
        stage.pause(5)
        stage.disarm(name)
        stage.wait_until_started()
    else:
        stage.start()
        stage.pause(10)
        stage.disarm(name)
    gone(stage, program)


def gone(stage: Stage, program: Program) -> None:
    """What is left of a program whose JVM was killed is to end by itself."""
    try:
        wait_until(lambda: not program.pids(), within=ENDS_SOON_S)
    except TimeoutError:
        stage.left.append(f"{len(program.pids())} processes {ENDS_SOON_S:.0f} s after the JVM was killed")


def workers_killed(stage: Stage) -> None:
    """Of those that stand at a step."""
    for pid in stage.standing():
        kill_if_there(pid)
    stage.disarm(stage.name)


def kill_if_there(pid: int) -> None:
    """SIGKILL of a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def broker_killed(stage: Stage) -> None:
    """What stood goes on while the broker is away."""
    broker_away(stage, lambda: (stage.disarm(stage.name), stage.pause(3)))


def broker_away(stage: Stage, meanwhile: Callable[[], object]) -> None:
    """Kill the only broker, and start it again."""
    node = stage.kafka.node(0)
    node.kill()
    meanwhile()
    node.start()
    stage.kafka.wait_until_ready()
    if stage.watch is not None:
        stage.watch.broker_began()
