"""A run of queries that write to topics: brokers, a load, one program with all queries, faults, and what is left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.checkpoint import Checkpoint
from faults.evidence import TP, Fault
from faults.load import Load
from faults.once.publisher import RESTART
from faults.once.stepping import MARKS
from faults.once.watch import Watch
from faults.processes import Program, command
from faults.programs import points
from faults.programs.session import environment
from faults.topics import ends_of, open_transactions
from spark_kafka_group.options import Options
from spark_kafka_group.options.connection import ClientOptions
from spark_kafka_group.testing import KafkaCluster, wait_until

STARTED_WITHIN_S = 240.0
RECOVERED_WITHIN_S = 240.0
AT_REST_WITHIN_S = 240.0
STANDS_WITHIN_S = 120.0
BOUND_S = 60.0
"""So soon after a fault each query is to have done a batch: several queries start at a time on a small machine."""
ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
OUTPUT_PARTITIONS = 2


@dataclass
class PublishingQuery:
    """A query of the program.

    Attributes
    ----------
    group, prefix
        Of the consumer group, and of the transactional ids.
    alone
        Whether no other member is in its group.
    seen
        Endings that were looked at.
    """

    name: str
    shape: str
    topics: Mapping[str, int]
    output: str
    group: str
    prefix: str
    directory: Path
    alone: bool
    source: dict[str, str]
    sink: dict[str, str]
    seen: int = 0
    _checkpoint: Checkpoint | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        if self._checkpoint is None:
            starts = {(topic, p): 0 for topic, count in self.topics.items() for p in range(count)}
            self._checkpoint = Checkpoint(self.directory / "checkpoint", starts)
        return self._checkpoint

    def marks(self, process: str) -> Path:
        """Of one process of the program."""
        return self.directory / MARKS / process

    def endings(self) -> list[dict[str, Any]]:
        """How it has ended by itself, each time."""
        path = self.directory / "endings.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def specification(self, source_format: str) -> dict[str, Any]:
        """For the program."""
        return {
            "name": self.name, "shape": self.shape, "topics": list(self.topics), "source": self.source,
            "sink": self.sink, "directory": str(self.directory), "format": source_format,
        }  # fmt: skip


@dataclass
class Ended:
    """An end of a query by itself; `wanted` if the fault is one that ends it."""

    query: str
    error: str
    wanted: bool


@dataclass
class Stage:
    """What a run has.

    Attributes
    ----------
    guarantee
        The sink's.
    arguments
        More of the program.
    hits
        How many queries each fault has hit, by its kind.
    mended
        Of queries whose last batch was lost in part: the batch's number, and what the tool has made of it.
    """

    kafka: KafkaCluster
    directory: Path
    seed: int
    guarantee: str
    session_s: float
    timeout_ms: int
    arguments: tuple[str, ...] = ()
    queries: list[PublishingQuery] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)
    endings: list[Ended] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    mended: list[tuple[str, int, str]] = field(default_factory=list)
    neighbours: list[Any] = field(default_factory=list)
    incarnation: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.closing = contextlib.ExitStack()
        self.load: Load | None = None
        self.watch: Watch | None = None
        self._programs: list[Program] = []
        self._tag = self.rng.randrange(2**32)

    # Before it begins

    def topic(self, name: str, partitions: int) -> str:
        """A new topic."""
        return self.kafka.create_topic(f"once-{self._tag:08x}-{os.getpid()}-{name}", partitions=partitions)

    def add(
        self, shape: str, topics: Mapping[str, int], output: str, group: str, alone: bool = True, **sink: str
    ) -> PublishingQuery:
        """A query of the program."""
        name = f"query{len(self.queries)}"
        prefix = f"{group}-{name}"
        servers = {"kafka.bootstrap.servers": self.kafka.bootstrap_servers}
        source = servers | {
            "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2000", "minPartitions": "2",
            "kafka.group.id": group, "kafka.session.timeout.ms": str(round(self.session_s * 1000)),
            "kafka.heartbeat.interval.ms": str(round(self.session_s * 100)), "kafka.max.poll.interval.ms": "60000",
        }  # fmt: skip
        if not alone:
            source |= {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}
        written = servers | {"topic": output, "kafka.linger.ms": "0"} | sink
        if self.guarantee == ONCE:
            source |= {"kafka.transactional.id": prefix}
            written |= {
                "deliveryGuarantee": ONCE, "kafka.transactional.id": prefix,
                "kafka.transaction.timeout.ms": str(self.timeout_ms),
            }  # fmt: skip
        directory = self.directory / name
        directory.mkdir()
        query = PublishingQuery(name, shape, topics, output, group, prefix, directory, alone, source, written)
        self.queries.append(query)
        return query

    # The program

    @property
    def name(self) -> str:
        """Of the program's process."""
        return f"publisher{self.incarnation}"

    @property
    def program(self) -> Program:
        return self._programs[-1]

    def launch(self) -> None:
        """Start the program."""
        self.incarnation += 1
        tmp = Path(tempfile.mkdtemp(prefix="gk-"))  # a short path: Unix domain sockets are in it
        self.closing.callback(shutil.rmtree, tmp, ignore_errors=True)
        queries = [query.specification("groupkafka") for query in self.queries]
        started = [
            sys.executable, "-m", "faults.once.publisher", "--name", self.name, "--queries", json.dumps(queries),
            "--tmp", tmp, *self.arguments,
        ]  # fmt: skip
        self._programs.append(Program(started, self.directory / f"{self.name}.log", **environment(tmp)))

    def start(self) -> None:
        """Start the program, and wait until its queries run."""
        self.launch()
        self.wait_until_started()

    def wait_until_started(self) -> None:
        """Wait until all queries run."""
        self.wait_for(lambda: all((q.marks(self.name) / "started").exists() for q in self.queries), STARTED_WITHIN_S)

    def wait_for(self, condition: Callable[[], object], within: float) -> None:
        """Wait, while the program lives."""
        self.program.wait_for(condition, within)

    def workers(self) -> list[int]:
        """Spark's Python processes but the readers: those of tasks, those that decide and end, and their parents."""
        return [pid for pid in self.program.pids() if b"pyspark.daemon" in command(pid)]

    def executors(self) -> list[int]:
        """JVMs of executors; none in local mode."""
        return [pid for pid in self.program.pids() if b"CoarseGrainedExecutorBackend" in command(pid)]

    # Steps

    def arm(self, query: PublishingQuery, step: str) -> None:
        """Have a query stand at a step, once it comes there."""
        points.arm(query.marks(self.name), step)

    def stands(self, query: PublishingQuery, step: str) -> bool:
        """Whether a process of it stands there."""
        return bool(points.standing(query.marks(self.name), step))

    def standing(self) -> list[int]:
        """The processes that stand at a step."""
        return [pid for query in self.queries for pid in points.standing(query.marks(self.name))]

    def disarm(self, process: str) -> None:
        """Let all queries go on from the steps at which processes of this program stand."""
        for query in self.queries:
            points.disarm(query.marks(process))

    # Faults

    def fault(self, what: str, happen: Callable[[], None], hits: Sequence[str], may_end: bool = False) -> None:
        """A fault, until each query has done a batch since; `hits` are its kinds, one for each query that it hits."""
        print(f"  {len(self.faults) + 1}: {what}", flush=True)
        began = time.time() * 1000
        happen()
        healed = time.time() * 1000
        progressed: float | None = None
        try:
            wait_until(lambda: self._all_done_since(healed, may_end), within=RECOVERED_WITHIN_S, every=0.2)
            progressed = time.time() * 1000
        except TimeoutError:
            self.problems.append(f"after {what}: not all queries went on within {RECOVERED_WITHIN_S:.0f} s")
        self.hits.update(hits)
        self.faults.append(Fault(what, began, healed, progressed, progressed, BOUND_S))

    def _all_done_since(self, time_ms: float, may_end: bool) -> bool:
        self.restart_ended(may_end)
        return all(query.checkpoint.done_since(time_ms) for query in self.queries if query.alone) and any(
            query.checkpoint.done_since(time_ms) for query in self.queries
        )

    def restart_ended(self, may_end: bool) -> None:
        """Start what has ended by itself again, as an operator does."""
        if self.program.process.poll() is not None:
            self.endings.append(Ended("program", f"exit code {self.program.process.returncode}", may_end))
            self.start()
        for query in self.queries:
            for ending in query.endings()[query.seen :]:
                query.seen += 1
                self.endings.append(Ended(query.name, ending["error"], may_end or ending["process"] != self.name))
                print(f"     {query.name}: {sentence(ending['error'])[:300]}", flush=True)
                if ending["process"] == self.name:
                    (query.marks(self.name) / RESTART).touch()

    def pause(self, most_s: float) -> None:
        """Let a random time pass."""
        time.sleep(self.rng.random() * most_s)

    # Beginning and end

    def begin(self, load: Load) -> None:
        """Start the load and the program, and wait until all queries have done a batch."""
        began = time.time() * 1000
        self.load = self.closing.enter_context(load)
        if self.guarantee == ONCE:
            prefixes = {query.prefix for query in self.queries}
            self.watch = self.closing.enter_context(Watch(self.client_options(), prefixes))
        self.start()
        self.wait_for(lambda: self._all_done_since(began, may_end=True), STARTED_WITHIN_S)  # the first batch is slow

    def client_options(self) -> ClientOptions:
        """Of connections of the judge."""
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap_servers, "subscribe": "t"}
        return Options.parse(given).client

    def rest(self, may_end: bool = False) -> None:
        """Stop the load, wait until all is read and committed, and stop the program in order."""
        assert self.load is not None
        self.load.stop()
        try:
            wait_until(lambda: self._at_rest(may_end), within=AT_REST_WITHIN_S, every=0.3)
        except TimeoutError:
            self.problems.append(f"not at rest within {AT_REST_WITHIN_S:.0f} s: {self.unread()}")
        os.kill(self.program.process.pid, signal.SIGTERM)
        code = self.program.ends(90)
        if code:
            self.left.append(f"the program ended with {code} after SIGTERM")
        for program in self._programs:
            with contextlib.suppress(TimeoutError):
                wait_until(lambda program=program: not program.pids(), within=15)
            self.left += [f"a process of a program: {command(pid)[:200]!r}" for pid in program.pids()]
        outputs = {query.output: OUTPUT_PARTITIONS for query in self.queries}
        self.left += open_transactions(self.kafka, outputs)
        for group in {query.group for query in self.queries}:
            with contextlib.suppress(TimeoutError):
                wait_until(lambda group=group: not self.kafka.group_state(group)[1], within=15)
            if members := self.kafka.group_state(group)[1]:
                self.left.append(f"members of {group}: {members}")

    def ends(self) -> dict[TP, int]:
        """Where the logs end that are read."""
        topics = {topic: count for query in self.queries for topic, count in query.topics.items()}
        return ends_of(self.kafka, topics)

    def committed(self, query: PublishingQuery) -> dict[TP, int]:
        """The offsets of its group, of its topics."""
        return {tp: at for tp, (at, _) in self.kafka.committed(query.group).items() if tp[0] in query.topics}

    def unread(self) -> list[str]:
        """What disagrees: logs, groups, and checkpoints of queries that are alone in their groups."""
        ends, found = self.ends(), []
        for query in self.queries:
            committed, read = self.committed(query), query.checkpoint.ends()
            for tp, end in ends.items():
                if tp[0] not in query.topics:
                    continue
                if committed.get(tp, 0) != end:
                    found.append(f"{query.name}: {tp} ends at {end}, its group is at {committed.get(tp)}")
                if query.alone and read.get(tp, 0) != end:
                    found.append(f"{query.name}: {tp} ends at {end}, its checkpoint at {read.get(tp)}")
        return found

    def _at_rest(self, may_end: bool) -> bool:
        self.restart_ended(may_end)
        return not self.unread()

    def close(self) -> None:
        """Kill whatever runs."""
        for program in self._programs:
            program.kill()
        self.closing.close()

    @contextlib.contextmanager
    def open(self) -> Iterator[Stage]:
        """Close it at the end of the block."""
        try:
            yield self
        finally:
            self.close()


def sentence(error: str) -> str:
    """The sentence of this project in an error of Spark's, or the error's first line."""
    lines = [line.strip() for line in error.splitlines() if line.strip()] or [""]
    ours = [line for line in lines if "spark_kafka_group.errors." in line]
    return (ours or lines)[0]
