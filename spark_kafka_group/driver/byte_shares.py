"""maxBytesPerTrigger: ranges cut to bytes that are estimated from samples of the log. Values in, values out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from spark_kafka_group.values.offsets import OffsetRange


class SizeSample(NamedTuple):
    """Record batches of a partition that lie beside each other, and their bytes in the log."""

    first: int  # first offset
    next: int  # offset after the last one
    bytes: int

    @property
    def rate(self) -> float:
        """Bytes of an offset."""
        return self.bytes / (self.next - self.first)

    def within(self, start: int, end: int) -> bool:
        """Whether it has offsets between two others."""
        return self.first < end and self.next > start


class Piece(NamedTuple):
    """A part of a range whose offsets have equal bytes, as far as they are known."""

    start: int
    end: int
    rate: float


class SizedRange:
    """A range, with an estimate of the bytes of each of its parts: those of the nearest sample. `samples`: in order.
    `otherwise`: bytes of an offset where there is no sample."""

    def __init__(self, whole: OffsetRange, samples: Sequence[SizeSample], otherwise: float) -> None:
        self.range = whole
        self._pieces = _pieces(whole, samples, otherwise)
        self.bytes = self.bytes_until(whole.end)

    def bytes_until(self, offset: int) -> float:
        """Bytes from its start to an offset."""
        return math.fsum((min(p.end, offset) - p.start) * p.rate for p in self._pieces if p.start < offset)

    def cut(self, limit: float) -> OffsetRange:
        """As much of it as has at most `limit` bytes, and at least one offset."""
        left, end = limit, self.range.start
        for piece in self._pieces:
            size = piece.end - piece.start
            if size * piece.rate > left:
                end = piece.start + int(left / piece.rate)
                break
            left -= size * piece.rate
            end = piece.end
        return self.range._replace(end=min(max(end, self.range.start + 1), self.range.end))


def share_bytes(backlog: Collection[SizedRange], limit: int, turn: int) -> list[OffsetRange]:
    """As :func:`planner.share`, but cuts `backlog` to about `limit` bytes, in proportion to the bytes of each range.
    One range always gets one offset."""
    ranges = sorted((r for r in backlog if r.range.size > 0), key=lambda r: r.range)
    total = math.fsum(r.bytes for r in ranges)
    if total <= limit:
        return [r.range for r in ranges]
    given = {r.range.tp: r.cut(r.bytes * limit / total) for r in ranges}
    spent = {r.range.tp: r.bytes_until(given[r.range.tp].end) for r in ranges}
    over = math.fsum(spent.values()) - limit
    for r in sorted(ranges, key=lambda r: -spent[r.range.tp]):
        if over <= 0:
            return sorted(given.values())
        tp, before = r.range.tp, spent[r.range.tp]
        given[tp] = r.cut(max(0.0, before - over))
        spent[tp] = r.bytes_until(given[tp].end)
        over -= before - spent[tp]
    return _in_turn(ranges, limit, turn)


def _in_turn(ranges: list[SizedRange], limit: int, turn: int) -> list[OffsetRange]:
    """One offset of each range, from that whose turn it is on, as long as they have no more than `limit` bytes."""
    first = turn % len(ranges)
    chosen: list[OffsetRange] = []
    spent = 0.0
    for r in ranges[first:] + ranges[:first]:
        one = r.cut(0)
        spent += r.bytes_until(one.end)
        if chosen and spent > limit:
            break
        chosen.append(one)
    return sorted(chosen)


def places(start: int, end: int, samples: Collection[SizeSample], count: int) -> list[int]:
    """Offsets at which a range is still to be sampled, so that each of `count` equal parts of it has a sample."""
    count = min(count, end - start)
    borders = [start + (end - start) * n // count for n in range(count + 1)]
    parts = [part for part in pairwise(borders) if not any(sample.within(*part) for sample in samples)]
    return [first if first == start else (first + last) // 2 for first, last in parts]


def _pieces(whole: OffsetRange, samples: Sequence[SizeSample], otherwise: float) -> list[Piece]:
    if not samples:
        return [Piece(whole.start, whole.end, otherwise)]
    between = ((a.next + b.first) // 2 for a, b in pairwise(samples))
    borders = accumulate((whole.start, *(min(border, whole.end) for border in between), whole.end), max)
    return [
        Piece(start, end, sample.rate)
        for (start, end), sample in zip(pairwise(borders), samples, strict=True)
        if start < end
    ]
