"""A screen of groups: its lines, by the size of the terminal and the keys that were hit."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from spark_kafka_group.text.text_table import clipped, taken
from spark_kafka_group.tools.top.layout import SORTS, Table
from spark_kafka_group.tools.top.observer import Seen

HEAD = 3
"""Lines above the table: which cluster, how to go on, and what is wrong."""
LATE_AFTER = 3
"""Intervals without a look after which the view says so."""
AND_MORE = "  …"
"""What is left of the brokers' addresses in the first line where they have no room."""
SORT_KEYS = {sort[0]: sort for sort in SORTS}
KEYS = "l lag  r rate  g group  arrows  q quit"


class Screen:
    """The order of the rows, the first that is shown, and whether the end was asked for."""

    def __init__(self, servers: str, interval_s: float, sort: str) -> None:
        self.sort = sort
        self.ended = False
        self._servers, self._interval_s = servers, interval_s
        self._first = 0
        self._page = 1

    def take(self, keys: Iterable[str]) -> None:
        """Act on keys."""
        for key in keys:
            moved = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page, " ": self._page}.get(key, 0)
            self._first = 0 if key == "home" else max(0, self._first + moved)
            self.sort = SORT_KEYS.get(key.lower(), self.sort)
            self.ended = self.ended or key in ("q", "Q")

    def lines(self, seen: Seen, table: Table, now: float, size: tuple[int, int]) -> tuple[list[str], int]:
        """Lines that fit, and the number of the table's header."""
        width, height = size
        header, rows = table.for_screen(width)
        self._page = max(1, height - HEAD - 1)
        self._first = min(self._first, max(0, len(rows) - self._page))
        page = rows[self._first : self._first + self._page]
        problem = self._problem(seen, now)
        head = [f"{_first_line(_clock(seen.at), table, width)}  {self._servers}",
                f"{self._which(len(page), len(rows))}, every {self._interval_s:g} s, by {self.sort}  ({KEYS})",
                problem]  # fmt: skip
        return [clipped(line, width) for line in (*head, header.ljust(width), *page)][:height], HEAD

    def _which(self, shown: int, count: int) -> str:
        if shown == count:
            return f"{count:,} rows" if count != 1 else "1 row"
        return f"rows {self._first + 1:,}-{self._first + shown:,} of {count:,}"

    def _problem(self, seen: Seen, now: float) -> str:
        since = f"as of {_clock(seen.at)}"
        if seen.problem is not None:
            return f"{since}: {seen.problem}"
        late = now - seen.at
        if late > LATE_AFTER * self._interval_s:
            return f"{since}: no broker has answered for {late:.0f} s"
        return seen.looks[-1].problem or ""


def _first_line(clock: str, table: Table, width: int) -> str:
    """Time and heading; the heading alone where the lag has no room beside the time."""
    room = width - len(clock) - len("  ") - len(AND_MORE)
    heading = table.heading(room)
    return f"{clock}  {heading}" if taken(heading) <= room else table.heading(width)


def _clock(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%SZ")
