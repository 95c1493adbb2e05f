"""Durations of things that happen again and again, counted and averaged as Kafka's own metrics are."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_S = 30.0  # Kafka's metrics.sample.window.ms; averages and maxima look at the current window and the one before


@dataclass(frozen=True)
class TimeWindow:
    """Durations within `WINDOW_S` seconds."""

    since_s: float
    count: int = 0
    sum_ms: float = 0.0
    max_ms: float = 0.0


class Timing:
    """Durations of one kind of event. One thread writes, others may read. `count`: events so far. `total_ms`: their
    durations. `last_ms`: duration of the last one; 0 before the first."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.last_ms = 0.0
        self._last_s: float | None = None
        self._windows: tuple[TimeWindow, ...] = ()

    def record(self, duration_ms: float, now_s: float) -> None:
        """Count an event that ends now, by any clock that only goes forward."""
        self.count += 1
        self.total_ms += duration_ms
        self.last_ms = duration_ms
        self._last_s = now_s
        windows = self._windows
        if not windows or now_s - windows[-1].since_s >= WINDOW_S:
            windows = (*windows[-1:], TimeWindow(now_s))
        last = windows[-1]
        filled = TimeWindow(last.since_s, last.count + 1, last.sum_ms + duration_ms, max(last.max_ms, duration_ms))
        self._windows = (*windows[:-1], filled)

    def ago_s(self, now_s: float) -> float | None:
        """Seconds since the last event; None before the first."""
        return None if self._last_s is None else max(0.0, now_s - self._last_s)

    def avg_ms(self, now_s: float) -> float | None:
        """Average duration in the last 30 to 60 seconds; None if nothing happened in them."""
        recent = self._recent(now_s)
        return sum(w.sum_ms for w in recent) / sum(w.count for w in recent) if recent else None

    def max_ms(self, now_s: float) -> float | None:
        """Longest duration in the last 30 to 60 seconds; None if nothing happened in them."""
        return max((w.max_ms for w in self._recent(now_s)), default=None)

    def _recent(self, now_s: float) -> list[TimeWindow]:
        return [window for window in self._windows if now_s - window.since_s < 2 * WINDOW_S]
