"""Values over time in equal bins, so that a picture has so many points, however long the run was."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

MOST_POINTS = 1_500
BINS = 120


@dataclass(frozen=True)
class Band:
    """Lowest, median and highest value at each place of an axis."""

    places: tuple[float, ...]
    lowest: tuple[float, ...]
    middle: tuple[float, ...]
    highest: tuple[float, ...]


def bin_of(place: float, length: float, count: int) -> int:
    """The number of the bin of a place between 0 and `length`."""
    return min(count - 1, max(0, int(place / length * count)))


def sums(points: Iterable[tuple[float, float]], length: float, count: int) -> list[float]:
    """The sum of the values in each bin."""
    totals = [0.0] * count
    for place, value in points:
        totals[bin_of(place, length, count)] += value
    return totals


def spread(spans: Iterable[tuple[float, float, float]], length: float, count: int) -> list[float]:
    """The sum of the values in each bin, where each value is spread evenly from one place to another."""
    totals, width = [0.0] * count, length / count
    for begin, end, value in spans:
        first, last = bin_of(begin, length, count), bin_of(end, length, count)
        if first == last:
            totals[last] += value
            continue
        edges = [begin, *(number * width for number in range(first + 1, last + 1)), end]
        for number, (left, right) in enumerate(pairwise(edges), first):
            totals[number] += value * (right - left) / (end - begin)
    return totals


def band(points: Iterable[tuple[float, float]], length: float, count: int = BINS) -> Band:
    """Of points in each bin that has any; the place of a bin is its middle."""
    bins: dict[int, list[float]] = {}
    for place, value in points:
        bins.setdefault(bin_of(place, length, count), []).append(value)
    filled = sorted(bins.items())
    return Band(
        tuple((number + 0.5) * length / count for number, _ in filled),
        tuple(min(values) for _, values in filled),
        tuple(median(values) for _, values in filled),
        tuple(max(values) for _, values in filled),
    )


def merged(spans: Iterable[tuple[float, float]], least: float) -> list[tuple[float, float]]:
    """Spans from and to, in order; those whose gap is smaller than `least` are one."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin - found[-1][1] < least:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
