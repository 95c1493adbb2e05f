"""A query of a run: one process after the other, with one checkpoint and one sink."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.checkpoint import Checkpoint
from faults.evidence import GROUPKAFKA, TP, Ending
from faults.processes import Program, command, whole_lines
from faults.programs import points
from faults.programs.session import environment
from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.node import session

FOLDERS = ("tasks", "events", "progress", "logs", "handled")
STARTED_WITHIN_S = 240.0
ENDS_WITHIN_S = 90.0
OF_POOLS = ("block-manager-", "process reaper")
"""Beginnings of names: two pools of Spark's grow to 100 threads each, and the JVM keeps a thread for a minute for each
command that Hadoop ran."""
OF_OTHERS = re.compile(r"hsperfdata_|lib.*\.so|.*\.lck$|pymp-|\.[0-9a-f-]{36}\.sock$")
"""Temporary files of the JVM, of codecs, and the sockets by which Spark reached workers that were killed."""


@dataclass(frozen=True)
class Holding:
    """Threads, descriptors and sockets of a process."""

    threads: int
    descriptors: int
    sockets: int


def held_by(pid: int) -> Holding | None:
    """What a process holds, without threads of some pools; None if it has ended."""
    files, threads = [], 0
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                files.append(os.readlink(entry))
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the second if it ends while it is read
                threads += not (task / "comm").read_text().startswith(OF_POOLS)
    except OSError:
        return None
    return Holding(threads, len(files), sum(name.startswith("socket:") for name in files))


@dataclass(frozen=True)
class Replaced:
    """A process of a query that lives, while another one takes its place."""

    name: str
    program: Program
    log: Path
    marks: Path

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self.program.process.poll() is not None

    def last_line(self) -> str:
        """What it said last."""
        return said_last(self.log)


def said_last(log: Path) -> str:
    """The last line of a process's log."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] or [""]
    return lines[-1][-600:]


def program(name: str, directory: Path, process: str, options: Mapping[str, str]) -> list[str]:
    """The command of a process of a query, which has its files in a folder."""
    for folder in FOLDERS:
        (directory / folder).mkdir(parents=True, exist_ok=True)
    return [
        sys.executable, "-m", f"faults.programs.{name}", "--directory", str(directory), "--name", process,
        "--options", json.dumps(options),
    ]  # fmt: skip


class Query:
    """One query; a process of it runs, or none.

    Parameters
    ----------
    starts
        Where its first batch begins.
    """

    def __init__(
        self, directory: Path, source: str, options: Mapping[str, str], starts: Mapping[TP, int], sink: str, *more: str
    ) -> None:
        self.directory = directory
        self.source = source
        self.options = dict(options)
        self.sink = sink
        self.more = more
        self.checkpoint = Checkpoint(directory / "checkpoint", starts)
        self.endings: list[Ending] = []
        self.began_ms = 0.0  # of the process that runs
        self.up = False  # whether a process of it is to run
        self.tmp = directory / "no temporary files yet"
        self._closing = contextlib.ExitStack()
        self.interrupted: set[int] = set()
        self.environment: dict[str, str] = {}
        self.prefix: list[str] = []
        self._program: Program | None = None
        for folder in FOLDERS:
            (directory / folder).mkdir(parents=True, exist_ok=True)
        self.incarnation = len(list((directory / "logs").iterdir()))  # of a run that goes on

    @property
    def name(self) -> str:
        """Of the process that runs, or ran last."""
        return f"{self.directory.name}-{self.incarnation}"

    @property
    def log(self) -> Path:
        return self.directory / "logs" / f"{self.name}.log"

    @property
    def marks(self) -> Path:
        """Of the process that runs, or ran last."""
        return self.directory / "marks" / self.name

    @property
    def program(self) -> Program:
        assert self._program is not None, "start first"
        return self._program

    def start(self, *more: str) -> None:
        """Start a process, and wait until its query runs."""
        self.launch(*more)
        self.wait_for(self.started)

    def launch(self, *more: str) -> None:
        """Start a process."""
        self.incarnation += 1
        self.began_ms = time.time() * 1000
        self.up = True
        self.marks.mkdir(parents=True, exist_ok=True)
        self.tmp = Path(tempfile.mkdtemp(prefix="gk-"))  # a short path: Unix domain sockets are in it
        self._closing.callback(shutil.rmtree, self.tmp, ignore_errors=True)
        command = [*self.prefix, *self.command(), *self.more, *more]
        self._program = Program(command, self.log, **environment(self.tmp) | self.environment)

    def command(self) -> list[str]:
        """Of a process, without more arguments."""
        options = dict(self.options)
        if self.source == GROUPKAFKA:
            options |= {"eventLog": str(self.directory / "events" / f"{self.name}.jsonl")}
        return [
            *program("spark_query", self.directory, self.name, options), "--source", self.source, "--sink", self.sink,
            "--tmp", str(self.tmp),
        ]  # fmt: skip

    def started(self) -> bool:
        """Whether the process has started its query."""
        return (self.marks / "started").exists()

    def arm(self, point: str) -> None:
        """Have the process stop dead at this point."""
        points.arm(self.marks, point)

    def disarm(self) -> None:
        """Let the process go on from where it stands."""
        points.disarm(self.marks)

    def at(self, point: str) -> bool:
        """Whether the process stands at this point."""
        return bool(points.standing(self.marks, point))

    def wait_for(self, condition: object, within: float = STARTED_WITHIN_S) -> None:
        """Wait, while the process lives."""
        self.program.wait_for(condition, within)

    def reads(self) -> bool:
        """Whether a process is there that reads: of Spark's, its reader."""
        return self.program.reads()

    @property
    def running(self) -> bool:
        return self._program is not None and self._program.process.poll() is None

    def kill(self) -> None:
        """kill -9 of all its processes at once."""
        self.up = False
        self.program.kill()
        self.note_interrupted()
        self.endings.append(Ending(self.name, "killed", wanted=True))

    def note_interrupted(self) -> None:
        """Keep the number of the batch that is not done."""
        self.interrupted |= {batch.number for batch in self.checkpoint.batches() if batch.done_ms is None}

    def ended_by_itself(self, wanted: bool) -> str:
        """Note it; returns the last line it said."""
        self.note_interrupted()
        self.up = False
        how = f"exit code {self.program.process.poll()}, {said_last(self.log)}"
        self.endings.append(Ending(self.name, how, wanted))
        wait_until(lambda: not session(self.program.process.pid), within=ENDS_WITHIN_S)
        return how

    def replaced(self) -> Replaced:
        """The process that runs, in whose place another one is started next."""
        self.note_interrupted()
        self._closing.callback(self.program.kill)
        return Replaced(self.name, self.program, self.log, self.marks)

    def stop(self) -> list[str]:
        """SIGTERM, as an operator does; returns what was left behind."""
        left = []
        self.up = False
        pid = self.program.process.pid
        os.kill(pid, signal.SIGTERM)
        code = self.program.ends(ENDS_WITHIN_S)
        if code != 128 + signal.SIGTERM:
            left.append(f"{self.name} ended with {code} after SIGTERM")
        self.note_interrupted()
        self.endings.append(Ending(self.name, f"stopped, {code}", wanted=True))
        try:
            wait_until(lambda: not session(pid), within=15)
        except TimeoutError:
            left.append(f"processes of {self.name}: {session(pid)}")
        files = [str(path.relative_to(self.tmp)) for path in self.tmp.rglob("*") if not path.is_dir()]
        files = [name for name in files if not OF_OTHERS.match(name.rpartition("/")[2])]
        if files:
            left.append(f"{len(files)} temporary files of {self.name}: {' '.join(sorted(files)[:5])}")
        return left

    def all_progress(self) -> Iterator[dict[str, Any]]:
        """Of all its processes, in order."""
        for number in range(1, self.incarnation + 1):
            for line in self._progress(number):
                yield json.loads(line)

    def _progress(self, number: int) -> list[str]:
        return whole_lines(self.directory / "progress" / f"{self.directory.name}-{number}.jsonl")

    def shown(self) -> list[dict[str, Any]]:
        """``latestOffset`` in the last progress of its process, of each source that has it."""
        lines = self._progress(self.incarnation)
        found = []
        for source in json.loads(lines[-1])["sources"] if lines else ():
            latest = source["latestOffset"]
            latest = json.loads(latest) if isinstance(latest, str) else latest
            if latest and "@group" in latest:
                found.append(latest)
        return found

    def lag(self) -> int | None:
        """The lag in the last progress of its process, of all its sources."""
        lags = [latest["@group"]["lag"] for latest in self.shown()]
        return sum(lags) if lags else None

    def seen_ms(self) -> float:
        """When the numbers of the last progress were looked up; 0 without any."""
        return min((latest["@group"]["timestampMs"] for latest in self.shown()), default=0)

    def close(self) -> None:
        """Kill what runs, and remove temporary files."""
        if self._program is not None:
            self._program.kill()
        self._closing.close()

    def workers(self) -> list[int]:
        """Spark's Python workers, and the processes that make them."""
        return [
            pid for pid in self.program.pids()
            if b"pyspark.daemon" in command(pid) or b"pyspark/daemon" in command(pid)
        ]  # fmt: skip

    def holdings(self) -> dict[tuple[str, int], Holding]:
        """What its processes hold: the JVM, Spark's reader processes, and its workers."""
        try:
            kinds = {"JVM": [self.program.jvm()], "reader": self.program.readers(), "worker": self.workers()}
        except StopIteration:  # there is no JVM
            return {}
        held = {(kind, pid): held_by(pid) for kind, pids in kinds.items() for pid in pids}
        return {process: holding for process, holding in held.items() if holding is not None}


class BareQuery(Query):
    """A query without Spark, whose sink is written over."""

    def command(self) -> list[str]:
        options = self.options | {"eventLog": str(self.directory / "events" / f"{self.name}.jsonl")}
        return program("bare_query", self.directory, self.name, options)

    def reads(self) -> bool:
        return self.running
