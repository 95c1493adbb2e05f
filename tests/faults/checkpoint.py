"""A query's checkpoint, as Spark writes it: where each batch ends, and when Spark had logged it as done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from faults.evidence import TP, Batch

HEAD = 2
"""Lines of an entry of the offset log before those of the sources: its version, and Spark's settings."""
NONE = "-"
"""A source without an offset."""


class Checkpoint:
    """Reads a checkpoint while its query runs, too; what it has read it keeps.

    Parameters
    ----------
    starts
        Where the first batch begins.
    """

    def __init__(self, directory: Path, starts: Mapping[TP, int]) -> None:
        self._directory = directory
        self._starts = dict(starts)
        self._offsets: dict[int, list[Mapping[str, Any]]] = {}
        self._planned_ms: dict[int, float] = {}

    def batches(self) -> list[Batch]:
        """All batches, in order."""
        done = {number: path.stat().st_mtime * 1000 for number, path in self._numbered("commits")}
        for number, path in self._numbered("offsets"):
            if number not in self._offsets:
                of_sources = path.read_text().splitlines()[HEAD:]
                self._offsets[number] = [json.loads(line) for line in of_sources if line != NONE]
                self._planned_ms[number] = path.stat().st_mtime * 1000
        found, before = [], self._starts
        for number, sources in sorted(self._offsets.items()):
            groups = [logged.get("@group", {}) for logged in sources]
            group = groups[0] if groups else {}
            ends = _merged(map(positions, sources))
            starts = {tp: before.get(tp, 0) for tp in ends} | _merged(positions(g.get("from", {})) for g in groups)
            left = _merged(positions(g.get("left", {})) for g in groups)
            said = group.get("generation"), group.get("batch"), group.get("reader")
            found.append(Batch(number, starts, ends, done.get(number), *said, planned_ms=self._planned_ms[number]))
            before = before | left | ends
        return found

    def done_since(self, time_ms: float, planned_too: bool = False) -> int:
        """Records of the batches that were done, or planned and done, from a time on."""
        return sum(batch.records for batch in self._done_since(time_ms, planned_too))

    def topics_since(self, time_ms: float, planned_too: bool = False) -> set[str]:
        """Topics of which these batches have records."""
        ranges = ((b.starts, tp, end) for b in self._done_since(time_ms, planned_too) for tp, end in b.ends.items())
        return {tp[0] for starts, tp, end in ranges if end > starts.get(tp, end)}

    def _done_since(self, time_ms: float, planned_too: bool) -> Iterator[Batch]:
        for batch in self.batches():
            if batch.done_ms is not None and ((batch.planned_ms or 0) if planned_too else batch.done_ms) >= time_ms:
                yield batch

    def ends(self) -> dict[TP, int]:
        """Where the batches end that are done."""
        ends: dict[TP, int] = {}
        for batch in self.batches():
            ends |= batch.ends if batch.done_ms is not None else {}
        return ends

    def _numbered(self, log: str) -> Iterator[tuple[int, Path]]:
        folder = self._directory / log
        if folder.exists():
            yield from ((int(path.name), path) for path in folder.iterdir() if path.name.isdecimal())


def furthest(checkpoints: Iterable[Checkpoint]) -> dict[TP, int]:
    """Where the batches end that are done: of several queries, the last one of each partition."""
    ended: dict[TP, int] = {}
    for checkpoint in checkpoints:
        for tp, end in checkpoint.ends().items():
            ended[tp] = max(end, ended.get(tp, 0))
    return ended


def _merged(several: Iterable[Mapping[TP, int]]) -> dict[TP, int]:
    return {tp: offset for one in several for tp, offset in one.items()}


def positions(topics: Mapping[str, Any]) -> dict[TP, int]:
    """Offsets by topic and partition, of Spark's JSON."""
    return {
        (topic, int(number)): offset
        for topic, numbers in topics.items()
        if not topic.startswith("@")
        for number, offset in numbers.items()
    }
