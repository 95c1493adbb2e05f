"""Faults of the processes that run tasks."""

from __future__ import annotations

import os
import signal
import time

from processes import command

from matrix.cells.registry import GROUPKAFKA, cell
from matrix.scene import Scene

WORKER = "worker"


def workers(scene: Scene) -> list[int]:
    """Spark's Python workers, and the process that makes them."""
    return [
        pid
        for pid in scene.query.program.pids()
        if b"pyspark.daemon" in command(pid) or b"pyspark/daemon" in command(pid)
    ]


@cell(WORKER, "SIGKILL of all Python workers, at a random moment", sources=(GROUPKAFKA,))
def worker_kill(scene: Scene) -> None:
    scene.pause(2)
    with scene.fault("SIGKILL of the Python workers"):
        for pid in workers(scene):
            os.kill(pid, signal.SIGKILL)


@cell(WORKER, "SIGSTOP of all Python workers for 5 s, at a random moment", sources=(GROUPKAFKA,), session_s=3.0)
def worker_pause(scene: Scene) -> None:
    scene.pause(2)
    stopped = workers(scene)
    with scene.fault("SIGSTOP of the Python workers for 5 s"):
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(5)  # the fault itself
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
