"""Where to start reading a partition: by the checkpoint, the group or the options, and which of them is right.

Values in, values out: the ends of a log appear as EARLIEST and LATEST, times as AtTime, to be looked up by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from spark_kafka_group.errors import NEW_CHECKPOINT, NoOffsetForPartitionError, OffsetConflictError
from spark_kafka_group.options.bounds import WORDS, Bound, Position
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.values.commit_metadata import Writer, generation_of, is_known, is_own, is_written_over, writer_of
from spark_kafka_group.values.offsets import EARLIEST, GroupOffset, TopicPartition
from spark_kafka_group.values.retry_topics import delay_of
from spark_kafka_group.wire import Committed

BY_GROUP, BY_CHECKPOINT, NEW = "the group's committed offset", "the checkpoint", "new partition"
NOT_WRITTEN = "not in the sink's transaction"
RETRIED, BY_RESET = "retry topic", "kafka.auto.offset.reset"


def spoken_of(bound: Bound, tps: Collection[TopicPartition], delays_ms: Collection[int]) -> set[TopicPartition]:
    """Those of `tps` whose start, or end, `bound` sets: of retry topics only those that it names."""
    named = bound.topics()
    return set(tps) - {tp for tp in _of_retry_topics(tps, delays_ms) if tp.topic not in named}


def _of_retry_topics(tps: Collection[TopicPartition], delays_ms: Collection[int]) -> set[TopicPartition]:
    return {tp for tp in tps if delay_of(tp.topic, delays_ms) is not None} if delays_ms else set()


def replaced_in(
    committed: Mapping[TopicPartition, Committed], query_id: str, batch: int, held: int, noted: int = -1
) -> int | None:
    """The generation in which another process went on with this very query after `batch`, if one did.

    The sign is a commit with its own query id, a generation later than any it held itself, and a later batch. Metadata
    of an earlier batch may name a later generation: a group of the newer protocol that becomes empty, and then one of
    the classic protocol, counts from 1 again.

    `held`: latest generation that this process held.
    `noted`: latest generation in the group's metadata as this process started: where another query has written over
        it, the batch is not known.
    """
    writers = [writer for group in committed.values() if (writer := writer_of(group.metadata)) is not None]
    own = [w.generation for w in writers if w.query_id == query_id and (w.batch is None or w.batch > batch)]
    before = [w.since[query_id].generation for w in writers if w.query_id != query_id and query_id in w.since]
    later = [generation for generation in own if generation > held]
    later += [generation for generation in before if generation > max(held, noted)]
    return max(later, default=None)


def latest_generation(committed: Mapping[TopicPartition, Committed], query_id: str) -> int:
    """The latest generation in which the query had one of these offsets; -1 for none."""
    return _latest(generation_of(group.metadata, query_id) for group in committed.values())


def latest_batch(committed: Mapping[TopicPartition, Committed], query_id: str) -> int:
    """The latest micro-batch for which the query has committed one of these offsets; -1 for none."""
    return _latest(writer.batch for writer in _writers(committed) if writer.query_id == query_id)


def latest_batch_of_others(committed: Mapping[TopicPartition, Committed], query_id: str) -> int:
    """The latest micro-batch for which other queries have committed one of these offsets; -1 for none."""
    return _latest(writer.batch for writer in _writers(committed) if writer.query_id != query_id)


def _writers(committed: Mapping[TopicPartition, Committed]) -> Iterator[Writer]:
    writers = (writer_of(group.metadata) for group in committed.values())
    return (writer for writer in writers if writer is not None)


def _latest(numbers: Iterable[int | None]) -> int:
    return max((number for number in numbers if number is not None), default=-1)


def of_later_batches(
    committed: Mapping[TopicPartition, Committed],
    positions: Mapping[TopicPartition, int],
    query_id: str,
    batch: int,
) -> set[TopicPartition]:
    """Partitions of `positions` with an offset that the query has committed for a batch after `batch`, or may
    have: one after the position, where another query's metadata does not say for which batch."""
    groups = {tp: committed[tp] for tp in positions if tp in committed}
    return {
        tp
        for tp, group in groups.items()
        if latest_batch({tp: group}, query_id) > batch
        or (group.offset > positions[tp] and is_written_over(group.metadata, query_id))
    }


def refuse_older_checkpoint(committed: Mapping[TopicPartition, Committed], query_id: str, batch: int) -> None:
    """See that the group has no later batch of the query than the checkpoint, which ends with `batch`: a sink that
    writes each batch once would take its batches for written. Raises OffsetConflictError."""
    latest = latest_batch(committed, query_id)
    if latest > batch:
        raise OffsetConflictError(
            f"the checkpoint ends with batch {batch} and the group has offsets of this query's batch {latest}, so "
            f"the checkpoint is an older one, and the sink, which has written that batch, would drop rows: take the "
            f"query's newest checkpoint, or start it with {NEW_CHECKPOINT}, at the group's offsets, and with "
            f"another kafka.transactional.id"
        )


@dataclass(frozen=True)
class Start:
    """Where a partition starts."""

    offset: Position  # an offset, EARLIEST, LATEST or a time
    why: str = field(default="", compare=False)  # the rule that decided it, in a few words
    commit: bool = False  # whether the group is wrong about this partition, so that `offset` is committed
    conflict: str | None = None  # the disagreement, as text for the log; None without one


@dataclass(frozen=True)
class StartRules:
    """Starts by a query's options. A retry topic holds records at which this very group has failed. So it starts where
    the group left off, or at its first record, also where options set the start of other topics."""

    starting: Bound
    auto_offset_reset: str
    retry_delays_ms: tuple[int, ...] = ()

    def new(
        self,
        tps: Collection[TopicPartition],
        committed: Mapping[TopicPartition, Committed],
        others: Collection[str] = (),
    ) -> dict[TopicPartition, Start]:
        """Starts of partitions that this query has never read.

        `others`: ids of the group's other members. The group's offsets are not moved under them: Kafka's own reset
            refuses, too, while a group has members.
        Raises NoOffsetForPartitionError when kafka.auto.offset.reset is ``none`` and the group has committed nothing
        for some of `tps`; OptionError when the options name partitions, but not all of `tps`.
        """
        if self.starting.group:
            return self._by_group(tps, committed)
        # A group that stands elsewhere is corrected: or its offset would be right at a restart before the first batch.
        spoken = spoken_of(self.starting, tps, self.retry_delays_ms)
        starts = {}
        for tp, offset in self.starting.positions_of(spoken).items():
            group = committed.get(tp)
            if group is None or group.offset == offset:
                starts[tp] = Start(offset, self.starting.option)
            elif others:
                starts[tp] = Start(group.offset, BY_GROUP, conflict=self._others_read(tp, offset, group, others))
            else:
                starts[tp] = Start(offset, self.starting.option, commit=True)
        return starts | self._by_group(set(tps) - spoken, committed)

    def _others_read(self, tp: TopicPartition, wanted: Position, group: Committed, others: Collection[str]) -> str:
        words: dict[Position, str] = {position: word for word, position in WORDS.items()}
        return (
            f"{tp}: {self.starting.option} says {words.get(wanted, wanted)}, the group has committed {group.offset} "
            f"and has other members ({', '.join(others)}): going on from the group's offset. To start elsewhere, stop "
            f"these members first, or take another kafka.group.id"
        )

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
            starts |= dict.fromkeys(without, Start(WORDS[self.auto_offset_reset], BY_RESET))
        return starts | dict.fromkeys(retried - starts.keys(), Start(EARLIEST, RETRIED))

    def gained(
        self, tps: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Start]:
        """Starts of partitions that a rebalance brought: where the member before left off, else as for a new query. One
        that options do not name was added later. Raises NoOffsetForPartitionError."""
        starts = {tp: Start(committed[tp].offset, BY_GROUP) for tp in tps if tp in committed}
        rest = set(tps) - set(starts)
        if not self.starting.group:
            spoken = spoken_of(self.starting, rest, self.retry_delays_ms)
            starts |= new_partitions([tp for tp in spoken if self.starting.get(tp) is None], {})
        return starts | self.new(rest - set(starts), {})


@dataclass(frozen=True)
class Checkpoint:
    """Positions in a query's checkpoint, and how far they can be believed."""

    positions: Mapping[TopicPartition, int]
    query_id: str
    generation: int  # of the checkpoint's last batch
    batch: int
    foreign: bool  # whether Spark's own kafka source wrote it: that never commits, so the group's offsets are not newer
    # Partitions whose offset in the group is the one of when this process last looked or committed: this process has
    # read on since, so its position is newer, also than an offset of others
    untouched: frozenset[TopicPartition] = frozenset()
    # Whether the sink of the last batch commits offsets together with rows: then this query has written no more than
    # its own offset in the group says
    in_transaction: bool = False


def restarted(
    checkpoint: Checkpoint, committed: Mapping[TopicPartition, Committed], policy: str
) -> dict[TopicPartition, Start]:
    """Starts of partitions that the checkpoint knows, by option onOffsetConflict. Raises OffsetConflictError when
    `policy` is ``fail`` and they differ for more than a commit of this query's own that is missing."""
    starts: dict[TopicPartition, Start] = {}
    conflicts: list[str] = []
    for tp, offset in checkpoint.positions.items():
        group = committed.get(tp)
        if group is None or group.offset == offset or tp in checkpoint.untouched:
            starts[tp] = Start(offset, BY_CHECKPOINT, commit=group is None or group.offset != offset)
            continue
        own = is_own(group.metadata, checkpoint.query_id, checkpoint.batch, checkpoint.generation)
        if checkpoint.in_transaction and own and group.offset < offset and policy != "checkpoint":
            starts[tp] = Start(group.offset, NOT_WRITTEN)
            continue
        if not (own and group.offset < offset):
            conflicts.append(_disagreement(checkpoint, tp, group))
        starts[tp] = _resolved(checkpoint, tp, group, policy, own)
    if conflicts and policy == "fail":
        raise OffsetConflictError(
            f"onOffsetConflict is fail, and {'; '.join(sorted(conflicts))}. Set it to checkpoint or group to choose "
            f"one of the two, or to auto to take the one that was written last"
        )
    return starts


def _resolved(checkpoint: Checkpoint, tp: TopicPartition, group: Committed, policy: str, own: bool) -> Start:
    problem = _disagreement(checkpoint, tp, group)
    if policy == "checkpoint" or (policy != "group" and (own or checkpoint.foreign)):
        return Start(checkpoint.positions[tp], BY_CHECKPOINT, True, f"{problem}: going on from the checkpoint")
    return Start(group.offset, BY_GROUP, False, f"{problem}: going on from the group's offset")


def _disagreement(checkpoint: Checkpoint, tp: TopicPartition, group: Committed) -> str:
    return (
        f"{tp}: the checkpoint says {checkpoint.positions[tp]} (this query, generation {checkpoint.generation}), "
        f"the group {group.offset} ({_by_whom(group.metadata, checkpoint)})"
    )


def _by_whom(metadata: str, checkpoint: Checkpoint) -> str:
    writer = writer_of(metadata)
    if writer is None:
        return f"another program, {printable(metadata) or 'without a note'}"
    if writer.query_id != checkpoint.query_id:
        return f"another query, {printable(writer.query_id)}, generation {writer.generation}"
    if not writer.is_own(checkpoint.query_id, checkpoint.batch, checkpoint.generation):
        return f"another program, and this query has adopted it in generation {writer.generation}"
    return f"this query, generation {writer.generation}"


def new_partitions(
    tps: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
) -> dict[TopicPartition, Start]:
    """Starts of partitions that did not exist when this query last looked: nothing of them may be missed."""
    return {tp: Start(committed[tp].offset, BY_GROUP) if tp in committed else Start(EARLIEST, NEW) for tp in tps}


def wrong_in_group(
    starts: Mapping[TopicPartition, Start],
    committed: Mapping[TopicPartition, Committed],
    checkpoint: GroupOffset,
    query_id: str,
) -> set[TopicPartition]:
    """Partitions whose offset in the group is wrong, or whose metadata names a batch that will be planned again."""
    known = {*checkpoint.positions, *checkpoint.left, *committed}
    wrong = {tp for tp, start in starts.items() if start.commit and tp in known}
    writers = {tp: writer_of(group.metadata) for tp, group in committed.items()}
    own = {tp: w for tp, w in writers.items() if w is not None and w.query_id == query_id}
    return wrong | {tp for tp, w in own.items() if w.without is not None and w.without > checkpoint.batch}


def adopted(
    positions: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, Committed],
    corrected: Collection[TopicPartition],
    query_id: str,
    batch: int,
    generation: int,
) -> dict[TopicPartition, Committed]:
    """Offsets of others from which the query goes on after `batch`, and whose metadata does not say so yet; it may be
    from a later batch, by an older checkpoint, or from a later generation, where the group counts anew."""
    taken = {tp: group for tp, group in committed.items() if positions.get(tp) == group.offset and tp not in corrected}
    return {tp: group for tp, group in taken.items() if not is_known(group.metadata, query_id, batch, generation)}


def by_reset(starts: Mapping[TopicPartition, Start]) -> set[TopicPartition]:
    """Partitions that start by the reset policy."""
    return {tp for tp, start in starts.items() if start.why == BY_RESET}


def recreated(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Topics that were deleted and recreated since `before`, by their ids."""
    return sorted(topic for topic, topic_id in now.items() if before.get(topic, topic_id) != topic_id)
