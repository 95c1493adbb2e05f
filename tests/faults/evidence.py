"""All that a run left behind, as values; and what a judge finds in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_kafka_group.tools.event_logs import Event

TP = tuple[str, int]
Place = tuple[str, int, int]
"""Topic, partition and offset."""
GROUPKAFKA, KAFKA = "groupkafka", "kafka"
"""Sources: this project's, and Spark's own."""
TOPIC, TOPIC_ONCE = "topic", "topic-once"
"""Sinks that are a topic: what a consumer of it reads, with ``read_committed`` for the second."""
PROCESSOR, PROCESSOR_ONCE = "processor", "processor-once"
"""Sinks of a query whose records a RecordProcessor handles: its rows are those that are done. Of the second they are
the records that its handler returned, as a consumer with ``read_committed`` has them."""
PROCESSORS = (PROCESSOR, PROCESSOR_ONCE)
IN_TRANSACTIONS = (TOPIC_ONCE, PROCESSOR_ONCE)
CLEANLY = "cleanly"
EXACTLY_ONCE = ("parquet", "overwrite", *IN_TRANSACTIONS)


@dataclass(frozen=True)
class Finding:
    """A broken invariant; `records` where it is about records."""

    invariant: str
    problem: str
    records: int = 0


@dataclass(frozen=True)
class Acknowledged:
    """A record that a broker has acknowledged; the offset is -1 where a broker had it already."""

    identity: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Batch:
    """A micro-batch.

    Attributes
    ----------
    number
        Spark's.
    starts, ends
        Of its ranges, the ends exclusive.
    planned_ms, done_ms
        When Spark logged it as planned, and as done; None if it has not.
    generation, of_source, reader
        The generation that planned it, its number among the batches with data, and the id of the query, where the
        source says these.
    query
        The number of the query in its run.
    """

    number: int
    starts: Mapping[TP, int]
    ends: Mapping[TP, int]
    done_ms: float | None
    generation: int | None = None
    of_source: int | None = None
    reader: str | None = None
    query: int = 0
    planned_ms: float | None = None

    @property
    def records(self) -> int:
        """Offsets that it has."""
        return sum(max(0, end - self.starts.get(tp, end)) for tp, end in self.ends.items())


@dataclass(frozen=True)
class Row:
    """A row of the sink."""

    batch: int
    topic: str
    partition: int
    offset: int
    value: str
    query: int = 0

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset


@dataclass(frozen=True)
class Plan:
    """The tasks that a process of a query has made of a batch.

    Attributes
    ----------
    process
        Its name.
    reader, batch
        The id of the query, and the number of the batch among those with data.
    tasks
        Ranges of each task: topic, partition, start, end.
    """

    process: str
    reader: str
    batch: int
    tasks: Sequence[Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class Call:
    """A call of a RecordProcessor's handler.

    Attributes
    ----------
    row
        The record; its batch is the one whose ranges have it.
    timestamp_ms
        The record's own.
    at_ms
        When the call began.
    outcome
        ``done``, ``failed``, or ``fatal`` where the record is not to be tried again.
    """

    row: Row
    timestamp_ms: int
    at_ms: float
    outcome: str


@dataclass(frozen=True)
class Dead:
    """A record in a dead-letter topic.

    Attributes
    ----------
    stage
        Of the topic from which it came: 0 is the main topic, then the number of the retry topic.
    """

    value: str
    stage: int


@dataclass(frozen=True)
class Shown:
    """Numbers that the progress of a query shows.

    Attributes
    ----------
    sources
        ``latestOffset`` of each source at rest, by the last process; empty if it has not shown it since.
    since_ms
        When that process began.
    batches
        By Spark's number the ends of a batch, of all sources, and its input rows; by any process.
    handled
        By the same number what RecordProcessor counted.
    until_ms
        When the numbers of `sources` were looked up, by the clock of brokers and judge.
    """

    sources: Sequence[Mapping[str, Any]] = ()
    since_ms: float = 0
    batches: Mapping[int, tuple[Mapping[TP, int], int]] = field(default_factory=dict)
    handled: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    until_ms: float = math.inf


@dataclass(frozen=True)
class Fault:
    """One fault: what it was, when it began, when it was over, and when the query was done with 1,000 records since.

    Attributes
    ----------
    first_ms
        When the first batch with data was done after it was over.
    bound_s
        So soon after it was over 1,000 records have to be done.
    """

    what: str
    began_ms: float
    healed_ms: float
    first_ms: float | None
    progressed_ms: float | None
    bound_s: float


@dataclass(frozen=True)
class Stored:
    """A record of the group in ``__consumer_offsets``: a generation, or a commit.

    Attributes
    ----------
    members, names
        By the member's id: its partitions; and its client id, and its instance id if it has one.
    note
        The metadata of a query's commit; None for a commit of another program.
    """

    time_ms: float
    generation: int | None = None
    members: Mapping[str, Sequence[TP]] = field(default_factory=dict)
    names: Mapping[str, Collection[str]] = field(default_factory=dict)
    tp: TP | None = None
    offset: int | None = None
    note: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Ending:
    """How a process of a query ended; `wanted` by the run, or by itself. CLEANLY is behind the commit of a batch."""

    process: str
    how: str
    wanted: bool


COMMIT, ABORT = "commit", "abort"
"""What the tool makes of a batch that was lost in part: it counts as published, or it is written again."""


@dataclass(frozen=True)
class Output:
    """What queries have written to topics, and what they have read.

    Attributes
    ----------
    name
        Of the query, or of the group of several queries.
    shape
        What a query makes of records.
    log
        The records of the topics that are read.
    rows, uncommitted
        Key and value of the records in the output: what readers of committed records get, and all others; None where
        nobody has looked.
    once
        Whether they are written exactly once.
    batches
        Of the one query that writes the output.
    delivered, in_doubt
        Places of records that other members of the group have committed; and that they have read, and perhaps
        committed.
    ends, committed, ended
        Where the logs end, the group is, and the checkpoint of the one query.
    mended
        Batches that were lost in part, with the tool's choice.
    """

    name: str
    shape: str
    log: Mapping[Place, str]
    rows: Counter[tuple[str, str]]
    uncommitted: Counter[tuple[str, str]] | None = None
    once: bool = True
    batches: Sequence[Batch] = ()
    delivered: Counter[Place] = field(default_factory=Counter)
    in_doubt: frozenset[Place] = frozenset()
    ends: Mapping[TP, int] = field(default_factory=dict)
    committed: Mapping[TP, int] = field(default_factory=dict)
    ended: Mapping[TP, int] | None = None
    mended: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Observed:
    """The evidence of a run.

    Attributes
    ----------
    log
        Records that the topics have, by place; also those that operators have deleted since, as acknowledged.
    delivered, in_doubt
        Records that neighbours have read and committed; and those of their commits nobody knows.
    removed
        Records that brokers or operators took away before the query could read them, or set the query past.
    again
        Records that operators had the query read again.
    aborted
        Records of transactions that were aborted.
    plans
        All plans of tasks, also several of one batch.
    committed, ended, ends
        At rest: the group's offsets, the checkpoint's, and the logs'. The checkpoint's are None if other members may
        have read the last records.
    all_members
        Whether all members of the group have written events.
    operated
        Whether operators have changed the group's offsets.
    lag
        At rest, as the query's last progress says.
    shown
        Numbers of the query's progress.
    calls, dead
        Of a RecordProcessor: the calls of its handler, and its dead letters.
    delays
        Milliseconds that records wait in each retry topic, in the order of the topics.
    left
        What was left behind after an orderly end.
    outputs
        Topics with rows of queries that do not only read.
    too_old
        Transactions that were open for too long: how many seconds.
    """

    source: str
    sink: str
    acknowledged: Sequence[Acknowledged] = ()
    log: Mapping[Place, str] = field(default_factory=dict)
    rows: Sequence[Row] = ()
    delivered: Sequence[str] = ()
    in_doubt: frozenset[str] = frozenset()
    batches: Sequence[Batch] = ()
    events: Sequence[Event] = ()
    all_members: bool = False
    plans: Sequence[Plan] = ()
    stored: Sequence[Stored] = ()
    committed: Mapping[TP, int] = field(default_factory=dict)
    ended: Mapping[TP, int] | None = field(default_factory=dict)
    ends: Mapping[TP, int] = field(default_factory=dict)
    lag: int | None = None
    shown: Shown = field(default_factory=Shown)
    calls: Sequence[Call] = ()
    dead: Sequence[Dead] = ()
    delays: Mapping[str, int] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    endings: Sequence[Ending] = ()
    removed: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    aborted: frozenset[str] = frozenset()
    interrupted: frozenset[int] = frozenset()
    operated: bool = False
    left: Sequence[str] = ()
    problems: Sequence[str] = ()
    outputs: Sequence[Output] = ()
    too_old: Mapping[str, float] = field(default_factory=dict)
