"""What the processes of a long run hold, sampled over time: does it grow?

A line of JSON for each sample::

    {"hours": 0.25, "piece": 1, "lag": 120, "of": {"driver JVM": [4711, 512.0, 88, 240], ...}}

with the process's id, its memory in MB, its threads and its descriptors.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.processes import whole_lines

MEASURES = ("memory", "threads", "descriptors")
UNITS = {"memory": "MB", "threads": "", "descriptors": ""}
LEAST = {"memory": 20.0, "threads": 3.0, "descriptors": 5.0}
"""A rise below that is no growth, however steady: a cache that fills."""
OF_ITS_LEVEL = 0.05
"""Nor is one below this part of what there is anyway."""
NOISE = 2.0
"""Nor is one of so many standard deviations of the values around their line."""
WARM_H = 5 / 60
"""A process is warm after that."""
ENOUGH_H = 20 / 60
"""The time that a process has to live, warm, for a verdict."""


@dataclass(frozen=True)
class Growth:
    """How one measure of one kind of process went in the second half of a run.

    Attributes
    ----------
    per_hour
        The slope of the line through the values, with a level of its own for each process.
    level, noise
        The mean; and the standard deviation of the values around their line.
    longest_h
        The longest time that one process was sampled, once it was warm.
    """

    role: str
    measure: str
    per_hour: float = 0.0
    level: float = 0.0
    noise: float = 0.0
    longest_h: float = 0.0
    processes: int = 0

    @property
    def known(self) -> bool:
        return self.longest_h >= ENOUGH_H

    @property
    def grows(self) -> bool:
        """Whether the rise in the life of one process is more than what comes and goes."""
        rise = self.per_hour * self.longest_h
        return self.known and rise > max(LEAST[self.measure], OF_ITS_LEVEL * self.level, NOISE * self.noise)

    @property
    def verdict(self) -> str:
        if not self.known:
            return "not known"
        return "grows" if self.grows else "no growth"


def read(path: Path) -> list[dict[str, Any]]:
    """Samples of a file, which may be being written."""
    return [json.loads(line) for line in whole_lines(path)]


def roles(samples: Iterable[Mapping[str, Any]]) -> list[str]:
    """All kinds of processes."""
    return sorted({role for sample in samples for role in sample["of"]})


def judged(samples: Sequence[Mapping[str, Any]]) -> list[Growth]:
    """Of each kind of process, and each measure."""
    return [of_one(samples, role, measure) for role in roles(samples) for measure in MEASURES]


def of_one(samples: Sequence[Mapping[str, Any]], role: str, measure: str) -> Growth:
    """One measure of one kind of process."""
    half = samples[-1]["hours"] / 2 if samples else 0.0
    index = 1 + MEASURES.index(measure)
    lives: dict[int, list[tuple[float, float]]] = defaultdict(list)
    born: dict[int, float] = {}
    for sample in samples:
        held = sample["of"].get(role)
        if held is not None:
            since = born.setdefault(held[0], sample["hours"])
            if sample["hours"] >= max(half, since + WARM_H):
                lives[held[0]].append((sample["hours"], held[index]))
    return line_through([life for life in lives.values() if len(life) > 2], role, measure)


def line_through(lives: Sequence[Sequence[tuple[float, float]]], role: str, measure: str) -> Growth:
    """One slope for all lives, with a level for each."""
    around, values = [], []
    for life in lives:
        mean_t, mean_v = (sum(column) / len(life) for column in zip(*life, strict=True))
        around += [(t - mean_t, v - mean_v) for t, v in life]
        values += [v for _, v in life]
    spread = sum(t * t for t, _ in around)
    if not spread:
        return Growth(role, measure)
    slope = sum(t * v for t, v in around) / spread
    noise = math.sqrt(sum((v - slope * t) ** 2 for t, v in around) / len(around))
    longest = max(life[-1][0] - life[0][0] for life in lives)
    return Growth(role, measure, slope, sum(values) / len(values), noise, longest, len(lives))


def table(found: Iterable[Growth]) -> list[str]:
    """A row for each kind of process and measure."""
    lines = [
        "| process | measure | level | an hour | around its line | processes | verdict |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for one in found:
        name = f"{one.measure}, {UNITS[one.measure]}" if UNITS[one.measure] else one.measure
        numbers = f"{one.level:,.0f} | {one.per_hour:+,.1f} | {one.noise:,.1f}" if one.processes else "- | - | -"
        lines.append(f"| {one.role} | {name} | {numbers} | {one.processes} | {one.verdict} |")
    return lines
