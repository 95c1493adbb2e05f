"""A query's processes: the Python program, the JVM, Spark's reader process, its workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.node import session


def command(pid: int) -> bytes:
    """A process's command line; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def signal_session(pid: int, number: int) -> None:
    """Send a signal to every process of a session."""
    for one in session(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, number)


def kill_session(pid: int) -> None:
    """kill -9 of all these."""
    while session(pid):
        signal_session(pid, signal.SIGKILL)


class Program:
    """A program in a session of its own, so that all its processes can be found, whatever group they are in."""

    def __init__(self, started: Iterable[object], log: Path, **environment: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [str(part) for part in started],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONFAULTHANDLER": "1"} | environment,
            )

    def pids(self) -> list[int]:
        """All living processes of the program."""
        return session(self.process.pid)

    def jvm(self) -> int:
        """The JVM's process."""
        return next(pid for pid in self.pids() if b"java" in command(pid).split(b"\0")[0])

    def readers(self) -> list[int]:
        """Spark's reader processes."""
        name = b"python_streaming_source_runner"
        return [pid for pid in self.pids() if name in command(pid)]

    def reader(self) -> int:
        """Spark's reader process."""
        return self.readers()[0]

    def reads(self) -> bool:
        """Whether there is a reader process."""
        return bool(self.readers())

    def signal_all(self, number: int) -> None:
        """Send a signal to every process."""
        signal_session(self.process.pid, number)

    def kill(self) -> None:
        """kill -9 of everything at once."""
        kill_session(self.process.pid)
        self.process.wait()

    def wait_for(self, condition: object, within: float = 180) -> None:
        """Wait for a condition while the program lives; its log is the error message."""

        def reached() -> bool:
            if self.process.poll() is not None and not condition():  # type: ignore[operator]
                raise AssertionError(
                    f"the program ended with {self.process.returncode}:\n{self.log.read_text()[-4000:]}"
                )
            return bool(condition())  # type: ignore[operator]

        wait_until(reached, within=within)

    def ends(self, within: float = 60) -> int:
        """Wait for the program's end; returns its exit code."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # its log gets the stacks of all threads
            self.process.wait()
            raise AssertionError(f"the program did not end:\n{self.log.read_text()[-4000:]}") from None


def whole_lines(path: Path) -> list[str]:
    """The lines that a process has written, none where there is no file; without a last one that was cut off.

    A kill -9, or a full disk, does that.
    """
    return path.read_text(errors="replace").rpartition("\n")[0].splitlines() if path.exists() else []
