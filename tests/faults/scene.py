"""One run of a cell: brokers, a load, queries; and the faults, each with the time that it took to recover."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from faults.checkpoint import furthest
from faults.evidence import TP, Fault
from faults.load import Load
from faults.neighbours import Said
from faults.running import Holding, Query
from faults.topics import ends_of, open_transactions
from spark_kafka_group.testing import KafkaCluster, wait_until

SESSION_S = 10.0
PROGRESS = 1_000
"""Records that have to be done after a fault."""
GIVEN_UP_AFTER = 6
"""Times the bound."""
AT_REST_WITHIN_S = 180.0
TOLD_WITHIN_S = 15.0
"""So soon a query without data says its progress again."""
LEAKED = 6
"""So many more threads, descriptors or sockets at rest than at the beginning, and after the first fault, are a leak: a
fault leaves one each."""
LEAKED_OF = {"JVM": 12, "worker": 12}
"""The same for a process whose own numbers come and go more than that, and for workers, which are new now and then."""
OF_A_BROKER = 3
"""Connections of a Python process to each further broker, which it makes when it first needs them, and keeps: for
metadata, as a member, and for fetches."""


Range = tuple[str, int, int, int]
"""Topic, partition, start, end (exclusive)."""


Held = Mapping[tuple[str, int], Holding]


def gains(before: Held, now: Held) -> list[tuple[str, str, int]]:
    """The kind of each process that was there before, and how many more threads, descriptors and sockets it has."""
    return [
        (kind, name, getattr(held, name) - getattr(before[kind, pid], name))
        for (kind, pid), held in now.items()
        if (kind, pid) in before
        for name in ("threads", "descriptors", "sockets")
    ]


def leaks(before: Held, now: Held, brokers: int = 1) -> list[str]:
    """What processes have gained, beyond what comes and goes."""
    further = dict.fromkeys(("reader", "worker"), OF_A_BROKER * (brokers - 1))
    return [
        f"{gained} {name} more in a {kind} process"
        for kind, name, gained in gains(before, now)
        if gained > LEAKED_OF.get(kind, LEAKED) + further.get(kind, 0)
    ]


def most(one: Holding, other: Holding) -> Holding:
    """The larger number of each."""
    return Holding(*(max(getattr(one, n), getattr(other, n)) for n in ("threads", "descriptors", "sockets")))


def now_ms() -> float:
    return time.time() * 1000


class Scene:
    """The brokers, the load and the queries of a run.

    Attributes
    ----------
    servers
        For the queries' kafka.bootstrap.servers: the brokers', unless the cell puts something in between.
    own_options
        More options of all queries.
    environment, prefix, arguments
        Of the queries' processes: variables, the beginning of their commands, and more at the end.
    removed, again
        Ranges of offsets that the cell took away, or had read again; `gone` are records that are in no log any more.
    aborted
        Records of transactions that were aborted.
    neighbours
        Other members of the group.
    also_read
        Partitions of topics that the query reads, and the load does not write.
    output
        The topic that the query writes, and its partitions, where its sink is a topic.
    delays, dead_letters
        Retry topics among them, with their milliseconds, in order; and the topic for dead letters.
    seen_at_rest
        Whether the query has shown its numbers since it came to rest.
    at_end
        Called after the orderly end of all queries; they return what they left elsewhere.
    real_ms
        The time at which the clock of the queries' processes shows this one.
    kinds, at_once
        Of storms: how often each kind of fault happened, and how many went on at the same time, at most.
    ending
        No fault is to begin any more.
    """

    def __init__(
        self,
        kafka: KafkaCluster,
        directory: Path,
        source: str,
        seed: int,
        topic: str,
        partitions: int,
        session_s: float,
    ) -> None:
        self.kafka = kafka
        self.directory = directory
        self.source = source
        self.seed = seed
        self.rng = random.Random(seed)
        self.topic = topic
        self.topics = {topic: partitions}
        self.group = f"group-{topic}"
        self.servers = kafka.bootstrap_servers
        self.own_options: dict[str, str] = {}
        self.session_s = session_s
        self.load: Load | None = None
        self.queries: list[Query] = []
        self.faults: list[Fault] = []
        self.removed: list[Range] = []
        self.again: list[Range] = []
        self.gone: set[str] = set()
        self.aborted: set[str] = set()
        self.neighbours: list[Said] = []
        self.environment: dict[str, str] = {}
        self.prefix: list[str] = []
        self.arguments: list[str] = []
        self.real_ms: Callable[[float], float] = lambda shown_ms: shown_ms
        self.kinds: Counter[str] = Counter()
        self.at_once = 0
        self.ending = threading.Event()
        self.operated = False
        self.problems: list[str] = []
        self.left: list[str] = []
        self.room: dict[str, Any] = {}
        self.at_end: list[Callable[[], list[str]]] = []
        self.closing = contextlib.ExitStack()
        self.also_read: dict[str, int] = {}
        self.output: dict[str, int] = {}
        self.delays: dict[str, int] = {}
        self.dead_letters: str | None = None
        self.seen_at_rest = False
        self._holdings: dict[tuple[str, int], Holding] = {}
        self._first_noted: dict[tuple[str, int], int] = {}  # behind how many faults
        self._workers = 0

    @property
    def query(self) -> Query:
        """The first one."""
        return self.queries[0]

    @property
    def read_topics(self) -> dict[str, int]:
        """Partitions of all topics that the query reads."""
        return self.topics | self.also_read

    @property
    def bound_s(self) -> float:
        return 2 * self.session_s + 5

    def options(self, more: Mapping[str, str]) -> dict[str, str]:
        """Of a query, by the names that its source knows."""
        options = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "4000",
        }
        if self.source == "groupkafka":
            options |= {
                "kafka.group.id": self.group,
                "kafka.session.timeout.ms": str(round(self.session_s * 1000)),
                "kafka.heartbeat.interval.ms": str(round(self.session_s * 100)),
                "kafka.max.poll.interval.ms": "60000",
            }
        return options | self.own_options | dict(more)

    def add_query(self, more: Mapping[str, str], sink: str, *arguments: str) -> Query:
        """A query that has not been started."""
        starts = {(topic, p): 0 for topic, count in self.read_topics.items() for p in range(count)}
        place = self.directory / f"query{len(self.queries)}"
        query = Query(place, self.source, self.options(more), starts, sink, *self.arguments, *arguments)
        query.environment, query.prefix = self.environment, self.prefix
        self.queries.append(query)
        return query

    def written_to(self, topic: str, partitions: int, once: bool) -> None:
        """Have queries write to a topic that exists; what they leave open is noted.

        Parameters
        ----------
        once
            In transactions, which have the group's offsets, too.
        """
        self.output = {topic: partitions}
        options = {"kafka.bootstrap.servers": self.servers, "topic": topic}
        if once:
            options |= {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": self.group}
            self.own_options |= {"kafka.transactional.id": self.group}
        self.arguments += ["--output", json.dumps(options)]
        self.at_end.append(lambda: open_transactions(self.kafka, self.output))

    # Faults

    @contextlib.contextmanager
    def fault(self, what: str, may_end: bool = False) -> Iterator[None]:
        """A fault, which is over at the end of the block; then the query has to go on.

        Parameters
        ----------
        may_end
            Whether the query may end with an error. It is started again then, as an operator does. It has gone on with
            batches that were planned after the fault: one that was running may be done, and its commit then fail.
        """
        print(f"  {len(self.faults) + 1}: {what}", flush=True)
        began = now_ms()
        yield
        self._recovered(what, began, now_ms(), may_end)

    def _recovered(self, what: str, began: float, healed: float, may_end: bool) -> None:
        deadline = time.monotonic() + GIVEN_UP_AFTER * self.bound_s
        first = progressed = None
        while progressed is None and time.monotonic() < deadline:
            if self.restarted_if_ended(may_end):
                healed = now_ms()
            checkpoint = self.query.checkpoint
            if first is None:
                times = (b.done_ms for b in checkpoint.batches() if b.done_ms and b.done_ms >= healed and b.records)
                first = min(times, default=None)
            all_go_on = len(self.topics) == 1 or self.topics.keys() <= checkpoint.topics_since(healed, may_end)
            if all_go_on and checkpoint.done_since(healed, planned_too=may_end) >= PROGRESS:
                progressed = now_ms()
            else:
                time.sleep(0.1)
        self.faults.append(Fault(what, began, healed, first, progressed, self.bound_s))
        self._note_holdings()

    def ran_to_its_end(self, what: str, began: float, healed: float) -> None:
        """A fault, and a run behind it that has read all that there was, and has ended."""
        print(f"  {len(self.faults) + 1}: {what}", flush=True)
        batches = self.query.checkpoint.batches()
        done = sorted((b.done_ms, b.records) for b in batches if b.done_ms and b.done_ms >= healed and b.records)
        sums = accumulate(records for _, records in done)
        progressed = next((ms for (ms, _), records in zip(done, sums, strict=True) if records >= PROGRESS), None)
        self.faults.append(Fault(what, began, healed, done[0][0] if done else None, progressed, self.bound_s))

    def restarted_if_ended(self, may_end: bool) -> bool:
        """Start queries again that have ended by themselves."""
        ended = [query for query in self.queries if query.up and not query.running]
        for query in ended:
            print(f"     {query.ended_by_itself(wanted=may_end)[:300]}", flush=True)
            query.start()
        return bool(ended)

    def pause(self, most_s: float = 1.0) -> None:
        """Let a random time pass, so that a fault may hit any moment of a batch."""
        time.sleep(self.rng.random() * most_s)

    def wait(self, condition: Callable[[], object], within: float = 120.0, every: float = 0.1) -> None:
        """Wait for something of the cell's."""
        wait_until(condition, within=within, every=every)

    # Beginning and end

    def begin(self, load: Load) -> None:
        """Start the load and the queries, and wait until they go on."""
        began = now_ms()
        self.load = self.closing.enter_context(load)
        for query in self.queries:
            query.launch()
        for query in self.queries:
            query.wait_for(query.started)
        for query in self.queries:
            query.wait_for(lambda query=query: query.checkpoint.done_since(began) >= PROGRESS / len(self.queries))
        self._note_holdings()

    def rest(self, at_rest: Callable[[Scene], object] | None = None) -> None:
        """Stop the load, and wait until all is read and committed."""
        assert self.load is not None
        self.load.stop()
        if at_rest is not None:
            at_rest(self)
        if self.load.pending:
            self.problems.append(f"{self.load.pending} records were neither acknowledged nor refused")
        try:
            wait_until(self._at_rest, within=AT_REST_WITHIN_S, every=1.0)  # each look makes consumers
        except TimeoutError:
            self.problems.append(f"not at rest within {AT_REST_WITHIN_S:.0f} s")
        self.left += self._leaks()
        if self.query.running and self.source == "groupkafka":
            since_ms = now_ms()
            with contextlib.suppress(TimeoutError):  # the judge compares them
                wait_until(lambda: self.seen_ms() >= since_ms, within=TOLD_WITHIN_S)
            self.seen_at_rest = self.seen_ms() >= since_ms
            if not self.seen_at_rest:
                self.problems.append(f"no progress within {TOLD_WITHIN_S:.0f} s of rest")

    def seen_ms(self) -> float:
        """When the numbers of the first query's last progress were looked up."""
        return self.real_ms(self.query.seen_ms())

    def _at_rest(self) -> bool:
        self.restarted_if_ended(may_end=False)
        ends = self.ends()
        read = self.ended()
        if any(read.get(tp, 0) != end for tp, end in ends.items()):
            return False
        return self.source != "groupkafka" or all(self.committed().get(tp, 0) == end for tp, end in ends.items())

    def ends(self) -> dict[TP, int]:
        """Where the logs end."""
        return ends_of(self.kafka, self.read_topics)

    def ended(self) -> dict[TP, int]:
        """Where the checkpoints end: of several queries, the last one of each partition."""
        return furthest(query.checkpoint for query in self.queries)

    def committed(self) -> dict[TP, int]:
        """The group's offsets."""
        return {tp: offset for tp, (offset, _) in self.kafka.committed(self.group).items()}

    def _note_holdings(self) -> None:
        """Keep what processes hold that are new; after the first fault what all hold, if it is more.

        Connections to the brokers that lead and coordinate after a fault come with the first one, and stay.
        """
        now = self.query.holdings() if self.query.running else {}
        if len(self.faults) == 1:
            self._holdings = {key: most(before, now.get(key, before)) for key, before in self._holdings.items()}
        self._holdings = now | self._holdings
        self._first_noted = dict.fromkeys(now, len(self.faults)) | self._first_noted
        self._workers = max(self._workers, sum(kind == "worker" for kind, _ in now))

    def _leaks(self) -> list[str]:
        """Threads, descriptors and sockets that a process of the query has gained, and workers."""
        now = self.query.holdings() if self.query.running else {}
        gained = (f"{kind} {number:+} {name}" for kind, name, number in gains(self._holdings, now) if number)
        print(f"     at rest: {', '.join(gained)}", flush=True)
        # A process that started with the last fault was noted while it was still starting.
        lived = {key: held for key, held in self._holdings.items() if self._first_noted[key] < len(self.faults)}
        left = leaks(lived, now, len(self.kafka.nodes))
        workers = sum(kind == "worker" for kind, _ in now)
        if workers > self._workers + LEAKED:
            left.append(f"{workers} Python workers, and {self._workers} before")
        return left

    def end(self) -> None:
        """Stop the queries in order; all that is left of them is noted."""
        for query in self.queries:
            if query.running:
                self.left += query.stop()
        if self.source == "groupkafka":
            try:
                wait_until(lambda: not self.kafka.group_state(self.group)[1], within=10)
            except TimeoutError:
                self.left.append(f"members of the group: {self.kafka.group_state(self.group)[1]}")
        for look in self.at_end:
            self.left += look()

    def close(self) -> None:
        """Kill whatever runs."""
        self.closing.close()
        for query in self.queries:
            query.close()
