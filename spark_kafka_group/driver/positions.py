"""Where to start reading a partition: the checkpoint, the group and the options, and who of them is right.

Values in, values out: the ends of a log appear as EARLIEST and LATEST, times as AtTime, to be looked up by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spark_kafka_group.bounds import WORDS, Bound, Position
from spark_kafka_group.destinations import delay_of
from spark_kafka_group.errors import NoOffsetForPartitionError, OffsetConflictError
from spark_kafka_group.notes import is_own, writer_of
from spark_kafka_group.offsets import EARLIEST, TopicPartition
from spark_kafka_group.wire import Committed

BY_GROUP, BY_CHECKPOINT, NEW = "the group's committed offset", "the checkpoint", "new partition"
RETRIED = "retry topic"


def spoken_of(bound: Bound, tps: Collection[TopicPartition], delays_ms: Collection[int]) -> set[TopicPartition]:
    """Those of `tps` whose start, or end, `bound` says: of retry topics only those that it names."""
    named = bound.topics()
    return set(tps) - {tp for tp in _of_retry_topics(tps, delays_ms) if tp.topic not in named}


def _of_retry_topics(tps: Collection[TopicPartition], delays_ms: Collection[int]) -> set[TopicPartition]:
    return {tp for tp in tps if delay_of(tp.topic, delays_ms) is not None} if delays_ms else set()


def replaced_in(committed: Mapping[TopicPartition, Committed], reader: str, held: int) -> int | None:
    """The generation in which another process went on with this very query, if one did.

    A driver that was suspended can find its group empty again: its successor came and went. What tells is a commit with
    its own reader id and a generation later than any it held itself.
    """
    writers = (writer_of(group.metadata) for group in committed.values())
    later = [w.generation for w in writers if w is not None and w.reader == reader and w.generation > held]
    return max(later, default=None)


@dataclass(frozen=True)
class Start:
    """Where a partition starts.

    Attributes
    ----------
    offset
        An offset, EARLIEST, LATEST or a time.
    why
        Which rule said so, in a few words.
    commit
        Whether the group is wrong about this partition and is to be told `offset`.
    conflict
        What disagreed, as text for the log; None when nothing did.
    """

    offset: Position
    why: str = field(default="", compare=False)
    commit: bool = False
    conflict: str | None = None


@dataclass(frozen=True)
class StartRules:
    """What a query's options say about starts.

    A retry topic holds what this very group has failed at, so whatever they say of other topics, it starts where the
    group left off, or at its first record.
    """

    starting: Bound
    auto_offset_reset: str
    retry_delays_ms: tuple[int, ...] = ()

    def new(
        self, tps: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Start]:
        """Starts of partitions that this query has never read.

        Raises
        ------
        NoOffsetForPartitionError
            When kafka.auto.offset.reset is ``none`` and the group has committed nothing for some of `tps`.
        OptionError
            When the options name partitions, but not all of `tps`.
        """
        if self.starting.group:
            return self._by_group(tps, committed)
        # A group that stands elsewhere is told: or what it says would be right at a restart before the first batch.
        spoken = spoken_of(self.starting, tps, self.retry_delays_ms)
        starts = {
            tp: Start(offset, self.starting.option, commit=tp in committed and committed[tp].offset != offset)
            for tp, offset in self.starting.of(spoken).items()
        }
        return starts | self._by_group(set(tps) - spoken, committed)

    def _by_group(
        self, tps: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Start]:
        retried = _of_retry_topics(tps, self.retry_delays_ms)
        without = sorted(set(tps) - set(committed) - retried)
        if without and self.auto_offset_reset == "none":
            raise NoOffsetForPartitionError(
                f"the group has committed no offset for {', '.join(map(str, without))} and kafka.auto.offset.reset is "
                f"none: set it to earliest or latest, or give startingOffsets"
            )
        starts = {tp: Start(committed[tp].offset, BY_GROUP) for tp in tps if tp in committed}
        if without:
            starts |= dict.fromkeys(without, Start(WORDS[self.auto_offset_reset], "kafka.auto.offset.reset"))
        return starts | dict.fromkeys(retried - starts.keys(), Start(EARLIEST, RETRIED))

    def gained(
        self, tps: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Start]:
        """Starts of partitions that a rebalance brought: where the member before left off, else as for a new query.

        Raises
        ------
        NoOffsetForPartitionError, OptionError
        """
        left = {tp: Start(committed[tp].offset, BY_GROUP) for tp in tps if tp in committed}
        return left | self.new(set(tps) - set(left), {})


@dataclass(frozen=True)
class Checkpoint:
    """What a query's checkpoint says, and what it is worth.

    Attributes
    ----------
    positions
        Of the partitions in question.
    reader
        The query's id.
    generation
        Under which the checkpoint's last batch was planned.
    foreign
        Whether Spark's own kafka source wrote it: it never commits, so what the group says is not newer.
    untouched
        Partitions of which the group says what it said when this process last looked or committed: what this process
        read since is newer, whoever wrote that.
    """

    positions: Mapping[TopicPartition, int]
    reader: str
    generation: int
    foreign: bool
    untouched: frozenset[TopicPartition] = frozenset()


def restarted(
    checkpoint: Checkpoint, committed: Mapping[TopicPartition, Committed], policy: str
) -> dict[TopicPartition, Start]:
    """Starts of partitions that the checkpoint knows, by option onOffsetConflict.

    Raises
    ------
    OffsetConflictError
        When `policy` is ``fail`` and they differ for more than a commit of this query's own that is missing.
    """
    starts: dict[TopicPartition, Start] = {}
    conflicts: list[str] = []
    for tp, offset in checkpoint.positions.items():
        group = committed.get(tp)
        if group is None:
            starts[tp] = Start(offset, BY_CHECKPOINT, commit=True)
        elif group.offset == offset:
            starts[tp] = Start(offset, BY_CHECKPOINT)
        elif tp in checkpoint.untouched:
            starts[tp] = Start(offset, BY_CHECKPOINT, commit=True)
        else:
            told = (
                f"{tp}: the checkpoint says {offset} (this query, generation {checkpoint.generation}), "
                f"the group {group.offset} ({_by_whom(group.metadata, checkpoint.reader)})"
            )
            own = is_own(group.metadata, checkpoint.reader)
            if not (own and group.offset < offset):
                conflicts.append(told)
            if policy == "checkpoint" or (policy != "group" and (own or checkpoint.foreign)):
                starts[tp] = Start(offset, BY_CHECKPOINT, True, f"{told}: going on from the checkpoint")
            else:
                starts[tp] = Start(group.offset, BY_GROUP, False, f"{told}: going on from the group's offset")
    if conflicts and policy == "fail":
        raise OffsetConflictError(
            f"onOffsetConflict is fail, and {'; '.join(sorted(conflicts))}. Set it to checkpoint or group to say "
            f"who is right, or to auto to go on from what was written last"
        )
    return starts


def _by_whom(metadata: str, reader: str) -> str:
    writer = writer_of(metadata)
    if writer is None:
        return f"somebody else, {metadata or 'without a note'}"
    who = "this query" if writer.reader == reader else f"somebody else, query {writer.reader}"
    return f"{who}, generation {writer.generation}"


def new_partitions(
    tps: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
) -> dict[TopicPartition, Start]:
    """Starts of partitions that did not exist when this query last looked: nothing of them may be missed."""
    return {tp: Start(committed[tp].offset, BY_GROUP) if tp in committed else Start(EARLIEST, NEW) for tp in tps}


def made_anew(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Topics that were deleted and made again since `before`, by their ids."""
    return sorted(topic for topic, topic_id in now.items() if before.get(topic, topic_id) != topic_id)
