"""Record batches of one partition, as a broker sent them."""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_group.values.offsets import TopicPartition


class Chunk(NamedTuple):
    """Record batches of one partition, of which the records from start to end are wanted."""

    tp: TopicPartition
    asked: int
    """The offset that was asked for."""
    start: int
    end: int
    records: memoryview
    """Valid until the next chunk is asked for."""
    aborted: tuple[tuple[int, int], ...] = ()
    """Producer id and first offset of each aborted transaction in them."""
    problem: str | None = None
    """Why the bytes behind these record batches cannot be read. Reading the partition ends unless the caller goes
    on."""
    silent: bool = False
    """Whether the broker sends neither records nor an error, though the log goes on. That is no proof of damage. The
    caller looks for damage and goes on behind it (:meth:`Fetcher.go_on`), or waits (:meth:`Fetcher.wait_on`)."""
    of_follower: bool = False
    """Whether they may be a follower's copy. Where that is damaged the leader is asked (:meth:`Fetcher.ask_leader`)."""
