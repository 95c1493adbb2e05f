"""Durations in buckets, as in HdrHistogram: a bucket is at most an eighth as wide as its values."""

from __future__ import annotations

from collections.abc import Iterator

BUCKETS = 8 * 40
"""Up to some hours, in microseconds."""


class Latencies:
    """Counts a handler's calls by their duration. For one thread."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS

    def add(self, nanoseconds: int) -> None:
        us = nanoseconds // 1000
        exponent = us.bit_length() - 4
        index = us if exponent <= 0 else (exponent << 3) + (us >> exponent)
        self.counts[index if index < BUCKETS else BUCKETS - 1] += 1

    def merge(self, other: Latencies) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]

    def milliseconds(self) -> Iterator[tuple[float, int]]:
        """Middle of each bucket that has any, and how many it has."""
        for index, count in enumerate(self.counts):
            if count:
                yield middle_us(index) / 1000, count


def middle_us(index: int) -> float:
    """Of a bucket, in microseconds."""
    if index < 16:
        return index + 0.5
    exponent = (index >> 3) - 1
    return (((index & 7) + 8) << exponent) + (1 << exponent) / 2
