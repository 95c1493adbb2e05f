"""The events of a query in its group, as lines of JSON in a file, so that a run can be checked afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from spark_kafka_group.values.offsets import OffsetRange, TopicPartition, partitions_by_topic, positions_to_json


class EventLog:
    """Appends an event a line; does nothing without a path. Each line has ``time_ms``, ``event``, ``group``, ``member``
    and ``generation``; then what belongs to the event."""

    def __init__(self, path: str | None, group_id: str, member: str, clock: Callable[[], float] = time.time) -> None:
        self._file = Path(path).open("a", encoding="utf-8", buffering=1) if path is not None else None  # noqa: SIM115
        self._common = {"group": group_id, "member": member}
        self._clock = clock

    def assigned(self, generation: int, tps: Collection[TopicPartition]) -> None:
        """Log all partitions that are owned in a generation."""
        if self._file is not None:
            self._write("assigned", generation, partitions=_numbers(tps))

    def revoked(self, generation: int, tps: Collection[TopicPartition]) -> None:
        """Log partitions that are given back for a rebalance."""
        self._write("revoked", generation, partitions=_numbers(tps))

    def lost(self, generation: int, tps: Collection[TopicPartition]) -> None:
        """Log partitions that are lost together with membership."""
        self._write("lost", generation, partitions=_numbers(tps))

    def moved(self, generation: int, starts: Mapping[TopicPartition, tuple[int | None, int, str]]) -> None:
        """Log starts that are not the end of the last batch: from, to, and why."""
        positions: dict[str, dict[str, Any]] = {}
        for tp, (before, after, why) in sorted(starts.items()):
            positions.setdefault(tp.topic, {})[str(tp.partition)] = {"from": before, "to": after, "why": why}
        self._write("moved", generation, positions=positions)

    def planned(self, generation: int, batch: int, ranges: Collection[OffsetRange], replay: bool) -> None:
        """Log a batch that Spark is about to run."""
        if self._file is None:
            return
        bounds: dict[str, dict[str, list[int]]] = {}
        for r in sorted(ranges):
            bounds.setdefault(r.tp.topic, {})[str(r.tp.partition)] = [r.start, r.end]
        self._write("planned", generation, batch=batch, ranges=bounds, **({"replay": True} if replay else {}))

    def committed(
        self, generation: int, batch: int, offsets: Mapping[TopicPartition, int], sent: float | None = None
    ) -> None:
        """Log offsets that the group has; `sent`, the time when they were sent, orders commits across members."""
        if self._file is not None:
            self._write("committed", generation, sent, batch=batch, offsets=positions_to_json(offsets))

    def close(self, generation: int) -> None:
        """Log that the query has ended in order. Harmless when repeated."""
        if self._file is not None:
            self._write("stopped", generation)
            self._file.close()
            self._file = None

    def now(self) -> float:
        """The clock of this log, in seconds."""
        return self._clock()

    def _write(self, event: str, generation: int, at: float | None = None, **more: Any) -> None:
        if self._file is None:
            return
        time_ms = round((self._clock() if at is None else at) * 1000, 3)
        line = {"time_ms": time_ms, "event": event, **self._common, "generation": generation}
        self._file.write(json.dumps(line | more) + "\n")


def _numbers(tps: Collection[TopicPartition]) -> dict[str, list[int]]:
    return {topic: [tp.partition for tp in of_topic] for topic, of_topic in partitions_by_topic(tps).items()}
