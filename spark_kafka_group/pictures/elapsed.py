"""Times of a run as places on an axis that begins with the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from spark_kafka_group.pictures import canvas

YEAR_MS = 365.25 * 86_400_000
UNITS = ((3 * YEAR_MS, YEAR_MS, "years"), (3 * 86_400_000.0, 86_400_000.0, "days"),
         (3 * 3_600_000.0, 3_600_000.0, "h"), (180_000.0, 60_000.0, "min"), (2_000.0, 1_000.0, "s"),
         (0.0, 1.0, "ms"))  # fmt: skip
"""For each unit: the least length of an axis in ms, the unit in ms, and its name."""


@dataclass(frozen=True)
class Elapsed:
    """From the first moment to the last, ms since the epoch."""

    from_ms: float
    to_ms: float

    @cached_property
    def length(self) -> float:
        """Of the axis, in its unit; above 0."""
        return max((self.to_ms - self.from_ms) / self._unit[1], 1e-3)

    @property
    def seconds(self) -> float:
        """Of the axis; above 0."""
        return self.length * self._unit[1] / 1000

    @property
    def axis(self) -> str:
        """What the axis shows."""
        return f"time since {_clock(self.from_ms)} ({self._unit[2]})"

    @property
    def range(self) -> str:
        """For a title."""
        first, last = _date(self.from_ms), _date(self.to_ms)
        until = f"{last} " if last and last != first else ""
        return f"{first} {_clock(self.from_ms, '')} – {until}{_clock(self.to_ms)}".strip()

    @cached_property
    def _unit(self) -> tuple[float, float, str]:
        return next(unit for unit in UNITS if self.to_ms - self.from_ms >= unit[0])

    def at(self, time_ms: float) -> float:
        """The place of a moment."""
        return (time_ms - self.from_ms) / self._unit[1]

    def show(self, axes: Any, named: bool = True) -> None:
        """Give axes this one below; `named` says whether with its name."""
        axes.set_xlim(0, self.length)
        canvas.brief_numbers(axes.xaxis)
        if named:
            axes.set_xlabel(self.axis)
        else:
            axes.tick_params(labelbottom=False)


def elapsed(times_ms: Iterable[float]) -> Elapsed:
    """Of all these moments; there is one at least."""
    times = list(times_ms)
    return Elapsed(min(times), max(times))


def _moment(time_ms: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # years that no calendar has
        return None


def _clock(time_ms: float, zone: str = " UTC") -> str:
    moment = _moment(time_ms)
    return f"{time_ms:.0f} ms" if moment is None else f"{moment:%H:%M:%S}{zone}"


def _date(time_ms: float) -> str:
    moment = _moment(time_ms)
    return "" if moment is None else f"{moment:%Y-%m-%d}"
