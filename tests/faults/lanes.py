"""Runs several cells at a time, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

Command = Sequence[str]


def run(commands: Sequence[Command], lanes: int) -> int:
    """Run commands, so many at a time, in their order; prints what each says when it has ended.

    Returns how many have failed. Commands that run are ended when this is ended.
    """
    running: set[subprocess.Popen[str]] = set()
    failed: list[Command] = []
    ending = threading.Event()

    def one(command: Command) -> None:
        if ending.is_set():
            return
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            running.add(process)
            said, _ = process.communicate()
            running.discard(process)
        print(said, end="", flush=True)
        if process.returncode:
            failed.append(command)

    with ThreadPoolExecutor(lanes) as pool:
        try:
            list(pool.map(one, commands))
        except BaseException:
            ending.set()
            for process in list(running):
                process.terminate()
            raise
    return len(failed)


def command(cell: str, source: str, *more: str) -> Command:
    """Runs a cell with one source, and writes no report."""
    return [sys.executable, "-m", "faults", "--only", cell, "--source", source, "--no-report", *more]
