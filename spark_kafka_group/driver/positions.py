"""Where to start reading a partition: the checkpoint, the group and the options, and who of them is right.

Values in, values out: the ends of a log appear as EARLIEST and LATEST, to be looked up by the caller.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spark_kafka_group.errors import NoOffsetForPartitionError, OptionError
from spark_kafka_group.offsets import EARLIEST, LATEST, TopicPartition
from spark_kafka_group.options import GROUP, StartingOffsets
from spark_kafka_group.wire import Committed

RESET = {"earliest": EARLIEST, "latest": LATEST}


def commit_note(reader: str, generation: int) -> str:
    """The metadata of a commit, by which a later start tells its own commits from others'."""
    return json.dumps({"reader": reader, "generation": generation}, separators=(",", ":"))


class Writer(NamedTuple):
    """Who wrote a commit, as its note says."""

    reader: str
    generation: int


def writer_of(metadata: str) -> Writer | None:
    """The writer that a commit's metadata names; None when it was nobody of this project."""
    try:
        note = json.loads(metadata)
        reader, generation = note["reader"], note["generation"]
    except (ValueError, TypeError, KeyError):
        return None
    return Writer(reader, generation) if isinstance(reader, str) and isinstance(generation, int) else None


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
        An offset, EARLIEST or LATEST.
    commit
        Whether the group is wrong about this partition and is to be told `offset`.
    conflict
        What disagreed, as text for the log; None when nothing did.
    """

    offset: int
    commit: bool = False
    conflict: str | None = None


@dataclass(frozen=True)
class StartRules:
    """What a query's options say about starts."""

    starting_offsets: StartingOffsets
    auto_offset_reset: str

    def new(
        self, tps: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Start]:
        """Starts of partitions that this query has never read.

        Raises
        ------
        NoOffsetForPartitionError
            When kafka.auto.offset.reset is ``none`` and the group has committed nothing for some of `tps`.
        OptionError
            When startingOffsets is JSON that does not name all of `tps`.
        """
        starting = self.starting_offsets
        if isinstance(starting, dict):
            missing = sorted(set(tps) - set(starting))
            if missing:
                raise OptionError(
                    f"startingOffsets names no offset for {', '.join(map(str, missing))}: "
                    f"name every partition, with -2 for earliest and -1 for latest"
                )
            return {tp: Start(starting[tp]) for tp in tps}
        if starting != GROUP:
            return {tp: Start(RESET[starting]) for tp in tps}
        without = sorted(set(tps) - set(committed))
        if without and self.auto_offset_reset == "none":
            raise NoOffsetForPartitionError(
                f"the group has committed no offset for {', '.join(map(str, without))} and kafka.auto.offset.reset is "
                f"none: set it to earliest or latest, or give startingOffsets"
            )
        return {tp: Start(committed[tp].offset if tp in committed else RESET[self.auto_offset_reset]) for tp in tps}


def restarted(
    checkpoint: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, Committed],
    reader: str,
    foreign: bool,
) -> dict[TopicPartition, Start]:
    """Starts of partitions that the checkpoint knows.

    Parameters
    ----------
    foreign
        Whether Spark's own kafka source wrote the checkpoint: it never commits, so what the group says is not newer.
    """
    starts = {}
    for tp, offset in checkpoint.items():
        group = committed.get(tp)
        if group is None:
            starts[tp] = Start(offset, commit=True)
        elif group.offset == offset:
            starts[tp] = Start(offset)
        elif foreign or ((writer := writer_of(group.metadata)) and writer.reader == reader):
            starts[tp] = Start(
                offset,
                commit=True,
                conflict=f"{tp}: the checkpoint says {offset}, the group {group.offset} (written by this query): "
                f"going on from the checkpoint",
            )
        else:
            starts[tp] = Start(
                group.offset,
                conflict=f"{tp}: the checkpoint says {offset}, the group {group.offset} (written by somebody else, "
                f"{group.metadata or 'without a note'}): going on from the group's offset",
            )
    return starts


def new_partitions(
    tps: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
) -> dict[TopicPartition, Start]:
    """Starts of partitions that did not exist when this query last looked: nothing of them may be missed."""
    return {tp: Start(committed[tp].offset if tp in committed else EARLIEST) for tp in tps}
