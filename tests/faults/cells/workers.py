"""Faults of the processes that run tasks."""

from __future__ import annotations

import os
import signal
import time

from faults.cells.registry import EXECUTOR, GROUPKAFKA, cell
from faults.scene import Scene


@cell(EXECUTOR, "SIGKILL of all Python workers, at a random moment", sources=(GROUPKAFKA,))
def worker_kill(scene: Scene) -> None:
    scene.pause(2)
    with scene.fault("SIGKILL of the Python workers"):
        kill_all(scene)


def kill_all(scene: Scene) -> None:
    """SIGKILL of all Python workers that there are."""
    for pid in scene.query.workers():
        os.kill(pid, signal.SIGKILL)


@cell(EXECUTOR, "SIGSTOP of all Python workers for 5 s, at a random moment", sources=(GROUPKAFKA,), session_s=3.0)
def worker_pause(scene: Scene) -> None:
    scene.pause(2)
    stopped = scene.query.workers()
    with scene.fault("SIGSTOP of the Python workers for 5 s"):
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(5)  # the fault itself
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
