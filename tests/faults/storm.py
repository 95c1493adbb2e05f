"""Draws from a seed which faults happen when, several at the same time. The same seed gives the same faults."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A fault.

    Attributes
    ----------
    weight
        How often it is drawn, among those of its lane.
    least_s, most_s
        How long it lasts, without the time that what was ended needs to start.
    """

    name: str
    weight: float = 1.0
    least_s: float = 0.0
    most_s: float = 0.0


@dataclass(frozen=True)
class Lane:
    """Faults of which one happens at a time, as they hit the same process; those of other lanes go on meanwhile.

    Attributes
    ----------
    every_s
        The mean time from the end of one to the next.
    """

    name: str
    every_s: float
    kinds: Sequence[Kind]


@dataclass(frozen=True)
class Step:
    """A fault that was drawn.

    Attributes
    ----------
    at_s
        Seconds after the beginning of the storm; later if the lane's last one is not over.
    choice
        A number for what else the fault has to draw.
    """

    lane: str
    kind: str
    at_s: float
    lasts_s: float
    choice: int


def drawn(seed: str, lanes: Iterable[Lane], seconds: float, calm: float = 1.0) -> Mapping[str, Sequence[Step]]:
    """The faults of each lane, in order.

    Parameters
    ----------
    seconds
        In which they begin.
    calm
        So many times the lanes' own time is between faults.
    """
    return {lane.name: of_lane(random.Random(f"{seed} {lane.name}"), lane, seconds, calm) for lane in lanes}


def of_lane(rng: random.Random, lane: Lane, seconds: float, calm: float) -> list[Step]:
    """The faults of a lane."""
    steps = []
    at = rng.expovariate(1 / (lane.every_s * calm))
    while at < seconds:
        (kind,) = rng.choices(lane.kinds, [kind.weight for kind in lane.kinds])
        lasts = rng.uniform(kind.least_s, kind.most_s)
        steps.append(Step(lane.name, kind.name, at, lasts, rng.randrange(2**31)))
        at += lasts + rng.expovariate(1 / (lane.every_s * calm))
    return steps


def without(lanes: Iterable[Lane], names: Iterable[str]) -> list[Lane]:
    """Lanes without some kinds; a lane that has none left is left out."""
    left_out = set(names)
    fewer = [Lane(one.name, one.every_s, [k for k in one.kinds if k.name not in left_out]) for one in lanes]
    return [lane for lane in fewer if lane.kinds]


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """How many of some spans of time there were at the same moment, at most."""
    changes = sorted(change for begin, end in spans for change in ((begin, 1), (end, -1)))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
