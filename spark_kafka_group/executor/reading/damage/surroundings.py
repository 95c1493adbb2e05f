"""The log around damage: record batches among its bytes, and more bytes than a chunk has."""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_group.executor.reading import batch_headers
from spark_kafka_group.executor.reading.batch_headers import Frame, Scan
from spark_kafka_group.executor.reading.chunk import Chunk
from spark_kafka_group.executor.reading.damage.damage import Damage
from spark_kafka_group.executor.reading.damage.search import Search, Seen
from spark_kafka_group.values.offsets import TopicPartition


class Surroundings:
    """Looks at the bytes of a log beside a damaged record batch.

    Parameters
    ----------
    scan
        Of the decoder.
    search
        Returns the task's search, which connects when it is first needed.
    """

    def __init__(self, scan: Scan, search: Callable[[], Search]) -> None:
        self._scan = scan
        self._search = search

    def linked(self, chunk: Chunk, byte: int, target: int, least: int) -> Frame | None:
        """The first undamaged record batch behind `byte` whose headers lead to the batch at byte `target`.

        Parameters
        ----------
        least
            Least base offset it may have.
        """
        return batch_headers.leading_to(self._scan, chunk.tp, chunk.records, byte, target, least, self._search().intact)

    def hidden(self, chunk: Chunk, byte: int, target: int, least: int, first: int) -> bool:
        """Whether a readable record batch with offsets from `first` on may be in the bytes that would be left out."""
        linked = self.linked(chunk, byte, target, least)
        end = target if linked is None or chunk.aborted else linked.begin
        return batch_headers.hidden(self._scan, chunk.tp, chunk.records, byte, end, first, self._search().intact)

    def wider(self, damage: Damage) -> Damage:
        """The damage among more bytes of the log; `damage` itself if the broker sends no others."""
        chunk, tp = damage.chunk, damage.tp
        if not chunk.records:
            before = self.seen_before(tp, damage.first)
            if before is None:
                return damage
            byte, _ = batch_headers.past(self._scan, tp, before.records, damage.first)
            more = chunk._replace(asked=before.asked, records=before.records, aborted=before.aborted)
            return damage.seen_in(more, byte)
        seen = self._search().seen(tp, chunk.asked)
        if seen.records[: len(chunk.records)] != chunk.records:
            return damage
        return damage.seen_in(chunk._replace(records=seen.records, aborted=seen.aborted), damage.byte)

    def seen_before(self, tp: TopicPartition, offset: int) -> Seen | None:
        """Bytes of the log from an offset before this one on; None if the broker sends none."""
        before = self._search().before(tp, offset)
        seen = None if before is None else self._search().seen(tp, before)
        return seen if seen is not None and seen.records else None
