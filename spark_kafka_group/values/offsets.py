"""Topic partitions, ranges of offsets, and the JSON that Spark keeps in a checkpoint. Values only, no I/O.

The JSON has the shape of Spark's own kafka source (``JsonUtils.partitionOffsets``), so that a checkpoint of
``format("kafka")`` can be continued, plus one key that no topic can have::

    {"orders": {"0": 120, "1": 80},
     "@group": {"reader": "5f0c…", "id": "billing", "generation": 7, "batch": 3, "topics": {"orders": "Xk2f…"},
                "from": {"orders": {"1": 40}}, "epochs": {"orders": {"0": 5, "1": 5}}}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from spark_kafka_group.errors import NEW_CHECKPOINT, OffsetFormatError
from spark_kafka_group.text.foreign_text import excerpt, parsed, printable

OF_ANOTHER_SOURCE = "A source of another kind may have written it: give this query a checkpointLocation of its own"
GROUP_KEY = "@group"
FORMAT_VERSION = 1
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
EARLIEST, LATEST = -2, -1  # Spark's and Kafka's numbers for the two ends of a log


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return printable(f"{self.topic}-{self.partition}")


Positions = Mapping[TopicPartition, int]


def partitions_by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions of each topic; topics and partitions in order."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in sorted(tps):
        topics.setdefault(tp.topic, []).append(tp)
    return topics


class OffsetAndTimestamp(NamedTuple):
    """Where a record is, and its timestamp in milliseconds since the epoch."""

    offset: int
    timestamp_ms: int


class OffsetRange(NamedTuple):
    """Records with ``start <= offset < end`` of one partition."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets; records may be fewer, as compaction and transactions leave gaps."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.tp}[{self.start},{self.end})"


def positions_from_json(obj: object, what: str) -> dict[TopicPartition, int]:
    """``{"orders": {"0": 120}}`` as positions. Raises OffsetFormatError, with `what` in its text, for another shape."""
    if not isinstance(obj, dict):
        raise OffsetFormatError(f'{what} must be JSON like {{"topic": {{"0": 120}}}}, not {excerpt(obj)}')
    positions: dict[TopicPartition, int] = {}
    for topic, partitions in obj.items():
        if not isinstance(partitions, dict):
            raise OffsetFormatError(
                f"{what}: the value of {excerpt(topic)} must map partitions to offsets, not {excerpt(partitions)}"
            )
        for partition, offset in partitions.items():
            if not (isinstance(partition, str) and _is_partition(partition)):
                raise OffsetFormatError(f"{what}: {excerpt(partition)} of {excerpt(topic)} is not a partition number")
            if not isinstance(offset, int) or isinstance(offset, bool) or not EARLIEST <= offset <= INT64_MAX:
                raise OffsetFormatError(f"{what}: {excerpt(offset)} is not an offset of {topic}-{partition}")
            positions[TopicPartition(topic, int(partition))] = offset
    return positions


def offset_of_any_source(text: object) -> dict[str, Any]:
    """The offset of a source of any kind in a query's progress; empty where there is none, or it is no JSON object.
    pyspark turns none into "None", and some versions into "null"."""
    try:
        value = parsed(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_partition(number: str) -> bool:
    """Whether it is a partition number in its only spelling: with another one two keys could mean one partition."""
    possible = number.isascii() and number.isdecimal() and len(number) <= 10
    return possible and str(int(number)) == number and int(number) <= INT32_MAX


def positions_to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """The reverse of :func:`positions_from_json`, topics and partitions in order."""
    obj: dict[str, dict[str, int]] = {}
    for tp in sorted(positions):
        obj.setdefault(tp.topic, {})[str(tp.partition)] = positions[tp]
    return obj


@dataclass(frozen=True)
class GroupOffset:
    """Spark's offset of one micro-batch: its ends, and the member of the group that planned it."""

    # Next offset to read of each partition the member owned
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    query_id: str | None = None  # id made once per query; None in a checkpoint that format("kafka") wrote
    # Generation of the group under which the batch was planned; -1 before the first, and without membership
    generation: int = -1
    batch: int = -1  # number of the batch among those of this query that had data, from 0; -1 before the first
    # Id of each topic (KIP-516), which tells a topic that was deleted and made again from the one it replaces
    topic_ids: dict[str, str] = field(default_factory=dict)
    # Start offsets that are not the previous batch's end (JSON key ``from``): partitions gained in a rebalance, or
    # moved because the group's committed offset was right and the checkpoint was not. All of them, where it is not
    # certain that Spark keeps the previous batch's end.
    moved: dict[TopicPartition, int] = field(default_factory=dict)
    # Leader epoch (KIP-320) under which each position was in its partition's log, which tells a log that lost its end;
    # not there where a broker did not give one
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    # Next offset to read of partitions that the member does not own any more, where the group does not have it; and of
    # topics that it has unsubscribed from, as groups forget offsets
    left: dict[TopicPartition, int] = field(default_factory=dict)
    # Whether the batch was planned for a sink that commits offsets in the transaction of its rows (JSON key
    # ``transaction``): then the group's offsets say which of its rows are written, and not that the batch is over
    in_transaction: bool = False
    group_id: str | None = None  # the group (JSON key ``id``): generations of another one tell nothing
    # The group's offsets of partitions in `left` than which these are newer: Spark's own source has read them
    overrides: dict[TopicPartition, int] = field(default_factory=dict)
    # Whether the user had no right on the group as the batch was planned: all of `positions` is newer than what the
    # group has
    unseen: bool = False

    def for_group(self, group_id: str) -> GroupOffset:
        """As it is right in this group: facts about another one say nothing here."""
        if self.group_id in (None, group_id):
            return self
        return replace(self, generation=-1, overrides={}, unseen=False)

    @property
    def is_in_group(self) -> bool:
        """Whether the sink has committed what is written to this group. (A batch of another one has no generation.)"""
        return self.in_transaction and self.generation >= 0

    def to_json(self) -> dict[str, Any]:
        """JSON-ready dict, equal for equal offsets: Spark compares the text to see whether there is new data."""
        obj: dict[str, Any] = dict(positions_to_json(self.positions))
        if self.query_id is not None:
            group: dict[str, Any] = {"reader": self.query_id, "generation": self.generation}
            if self.group_id is not None:
                group["id"] = self.group_id
            if self.batch >= 0:
                group["batch"] = self.batch
            if self.topic_ids:
                group["topics"] = dict(sorted(self.topic_ids.items()))
            if self.moved:
                group["from"] = positions_to_json(self.moved)
            if self.epochs:
                group["epochs"] = positions_to_json(self.epochs)
            if self.left:
                group["left"] = positions_to_json(self.left)
            if self.in_transaction:
                group["transaction"] = True
            if self.overrides:
                group["overrides"] = positions_to_json(self.overrides)
            if self.unseen:
                group["unseen"] = True
            obj[GROUP_KEY] = group
        return obj

    @classmethod
    def from_json(cls, obj: object) -> GroupOffset:
        """Read the JSON of :meth:`to_json`, or of Spark's kafka source. Raises OffsetFormatError when the shape is
        another one, or a newer version of this package wrote it."""
        if not isinstance(obj, dict):
            raise OffsetFormatError(
                f"the checkpoint's offset is not a JSON object: {excerpt(obj)}. {OF_ANOTHER_SOURCE}"
            )
        group = obj.get(GROUP_KEY)
        try:
            positions = positions_from_json({k: v for k, v in obj.items() if k != GROUP_KEY}, "the checkpoint's offset")
        except OffsetFormatError as error:
            raise error if group is not None else OffsetFormatError(f"{error}. {OF_ANOTHER_SOURCE}") from None
        if group is None:
            return cls(positions)
        if not isinstance(group, dict):
            raise OffsetFormatError(f"the checkpoint's offset has {excerpt(group)} under {GROUP_KEY!r}")
        version = group.get("version", 1)
        if version != FORMAT_VERSION:
            raise OffsetFormatError(
                f"the checkpoint's offset was written by offset format {excerpt(version)} of spark-kafka-group and "
                f"this installation reads format {FORMAT_VERSION}: install the version that wrote it, or a newer one"
            )
        if not _readable(group):
            raise OffsetFormatError(
                f"the checkpoint's offset has {excerpt(group)} under {GROUP_KEY!r}, which this version of "
                f"spark-kafka-group (offset format {FORMAT_VERSION}) cannot read: install the version that wrote it"
            )
        return cls(
            positions,
            group["reader"],
            group["generation"],
            group.get("batch", -1),
            group.get("topics", {}),
            positions_from_json(group.get("from", {}), "the checkpoint's 'from'"),
            epochs=positions_from_json(group.get("epochs", {}), "the checkpoint's 'epochs'"),
            left=positions_from_json(group.get("left", {}), "the checkpoint's 'left'"),
            in_transaction=group.get("transaction", False),
            group_id=group.get("id"),
            overrides=positions_from_json(group.get("overrides", {}), "the checkpoint's 'overrides'"),
            unseen=group.get("unseen", False),
        )

    def starts(self, previous: GroupOffset) -> dict[TopicPartition, int]:
        """Where the batch that ends here began, given the end of the one before, or of an earlier one. Raises
        OffsetFormatError when neither has a start, or ends between the two are missing, where it may have moved."""
        starts: dict[TopicPartition, int] = {}
        gap = self.batch > previous.batch + 1
        for tp, end in self.positions.items():
            start = self.moved.get(tp, previous.positions.get(tp))
            if gap and tp not in self.moved and start != end:
                raise OffsetFormatError(
                    f"{tp}: the checkpoint lacks the ends of batches {previous.batch + 1} to {self.batch - 1}, as "
                    f"Spark keeps only some with asyncProgressTrackingEnabled, and batch {self.batch} does not say "
                    f"where it starts. Start the query with {NEW_CHECKPOINT} and startingOffsets=group: it "
                    f"goes on at the group's offsets"
                )
            if start is None:
                raise OffsetFormatError(f"{tp}: the checkpoint says where the batch ends but not where it starts")
            starts[tp] = start
        return starts

    def ranges(self, previous: GroupOffset) -> list[OffsetRange]:
        """The non-empty ranges of the batch that ends here, in order of partition."""
        starts = self.starts(previous)
        return [OffsetRange(tp, starts[tp], end) for tp, end in sorted(self.positions.items()) if starts[tp] < end]


KEYS = {
    "reader", "id", "generation", "batch", "topics", "from", "epochs", "left", "overrides", "transaction", "unseen",
    "version",
}  # fmt: skip


def _readable(group: dict[str, Any]) -> bool:
    """Whether the value under ``@group`` has the keys and types of this format."""
    ids = group.get("topics", {})
    return (
        set(group) <= KEYS
        and isinstance(group.get("reader"), str)
        and isinstance(group.get("id", ""), str)
        and isinstance(group.get("unseen", False), bool)
        and isinstance(group.get("generation"), int)
        and isinstance(group.get("batch", -1), int)
        and group.get("batch", -1) >= -1
        and isinstance(group.get("transaction", False), bool)
        and isinstance(ids, dict)
        and all(isinstance(value, str) for value in ids.values())
    )


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """Ranges that one task reads, one after the other or interleaved, in offset order within a partition."""

    ranges: tuple[OffsetRange, ...]
    # For each range, the epoch of the leader in whose log it is, or -1; empty where none is known
    epochs: tuple[int, ...] = ()
    # The ids of the ranges' topics, where they are known: one that was made again has another
    topic_ids: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def under(
        cls, known: Mapping[TopicPartition, int], topic_ids: Mapping[str, str], ranges: tuple[OffsetRange, ...]
    ) -> ReadTask:
        """A task for `ranges`, in logs of leaders with these epochs and of topics with these ids, as far as known."""
        epochs = tuple(known.get(r.tp, -1) for r in ranges)
        ids = {topic: topic_ids[topic] for topic in sorted({r.tp.topic for r in ranges}) if topic in topic_ids}
        return cls(ranges, epochs if max(epochs, default=-1) >= 0 else (), ids)

    @property
    def leader_epochs(self) -> dict[TopicPartition, int]:
        """Those that are known, by partition."""
        return {r.tp: epoch for r, epoch in zip(self.ranges, self.epochs, strict=False) if epoch >= 0}
