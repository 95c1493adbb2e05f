"""Tables of text: whole, or narrowed or folded to the width of a terminal. Names in them come from strangers."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from spark_kafka_group.text.foreign_text import printable

NOTHING = "-"
GAP = "  "
FOLD = "    "  # before the second and each further line of a row
SHORTEST = 4  # characters of a text that every table keeps
SHORTEST_FOLDED = 16  # characters of a text that are kept before a row gets one more line


@dataclass(frozen=True)
class _Column:
    cells: tuple[str, ...]  # the header is the first
    width: int
    least: int  # it is not narrowed below this width
    numbers: bool
    times: bool

    def shown(self, line: int) -> str:
        text = shortened(self.cells[line], self.width)
        room = " " * (self.width - taken(text))
        return room + text if self.numbers else text + room


def shown(value: object) -> str:
    """A value on one line, which steers no terminal; None is ``-``."""
    return NOTHING if value is None else printable(str(value))


def counted(count: int, thing: str, plural: str = "") -> str:
    """``1 record``, ``2,000 records``."""
    return f"{count:,} {thing if count == 1 else plural or thing + 's'}"


def duration(seconds: float | None) -> str:
    """A time in its two largest units."""
    if seconds is None:
        return NOTHING
    if math.isinf(seconds):
        return "never"
    minutes, s = divmod(math.ceil(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days:,}d{h:02}h"
    if hours:
        return f"{hours}h{m:02}m"
    return f"{minutes}m{s:02}s" if minutes else f"{s}s"


def taken(text: str) -> int:
    """Columns of a terminal that `text` takes: two for each Chinese, Japanese or Korean character."""
    return len(text) if text.isascii() else len(text) + sum(unicodedata.east_asian_width(c) in "WF" for c in text)


def shortened(text: str, width: int) -> str:
    """`text` with an ellipsis in its middle if it is longer: ids often differ in their ends only."""
    if taken(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{_beginning(text, width - 1 - tail)}…{_beginning(text[::-1], tail)[::-1]}"


def clipped(text: str, width: int) -> str:
    """The beginning of `text`, and an ellipsis where that is not all."""
    text = printable(text)
    return text if taken(text) <= width else f"{_beginning(text, width - 1)}…"


def _beginning(text: str, width: int) -> str:
    text = text[:width]
    while taken(text) > width:
        text = text[:-1]
    return text


def whole(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A line for each row, with columns as wide as their cells. All cells are to the left."""
    return _text([[replace(column, numbers=False) for column in _columns(headers, list(rows), shown)]])


def narrowed(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    width: int,
    shown: Callable[[object], str] = shown,
) -> str:
    """A line a row, no wider than `width`: the widest texts are shortened, and if that is not enough the last texts are
    left out, then the last columns. Times and numbers, to the right, are whole, as a part misleads."""
    columns = [
        column if column.times or column.numbers else replace(column, least=min(column.width, SHORTEST))
        for column in _columns(headers, list(rows), shown)
    ]
    while len(columns) > 1 and _sum([column.least for column in columns]) > width:
        texts = [place for place, column in enumerate(columns) if place and not (column.times or column.numbers)]
        del columns[texts[-1] if texts else -1]
    return _text([_fitted(columns, width)])


def folded(headers: Sequence[str], rows: Iterable[Sequence[object]], width: int) -> str:
    """As many lines for each row as `width` asks for. Headers and numbers are whole, and long texts are shortened. A
    row whose further lines would be those of the row above has only its first line."""
    folds: list[list[_Column]] = [[]]
    for column in _columns(headers, list(rows), shown):
        room = width - len(FOLD) * (len(folds) > 1)
        if folds[-1] and _sum([*(each.least for each in folds[-1]), column.least]) > room:
            folds.append([])
        folds[-1].append(column)
    return _text([_fitted(fold, width - len(FOLD) * (number > 0)) for number, fold in enumerate(folds)])


def _columns(headers: Sequence[str], rows: Sequence[Sequence[object]], shown: Callable[[object], str]) -> list[_Column]:
    columns = []
    for number, header in enumerate(headers):
        values = [row[number] for row in rows]
        cells = (header, *map(shown, values))
        width = max(map(taken, cells))
        numbers = {type(value) for value in values} - {type(None)} <= {int, float} and any(
            value is not None for value in values
        )
        times = any(isinstance(value, datetime) for value in values)
        least = width if numbers or times else max(len(header), min(width, SHORTEST_FOLDED))
        columns.append(_Column(cells, width, least, numbers, times))
    return columns


def _fitted(columns: Sequence[_Column], width: int) -> list[_Column]:
    """Columns whose lines fit, if their least widths allow it."""
    widths = [max(column.least, min(column.width, width)) for column in columns]
    while _sum(widths) > width:
        widest = max(range(len(widths)), key=lambda n: (widths[n] > columns[n].least, widths[n]))
        if widths[widest] <= columns[widest].least:
            break
        widths[widest] -= 1
    return [replace(column, width=width) for column, width in zip(columns, widths, strict=True)]


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _text(folds: Sequence[Sequence[_Column]]) -> str:
    text: list[str] = []
    before: list[str] = []
    for line in range(len(folds[0][0].cells)):
        first, *others = (GAP.join(column.shown(line) for column in fold).rstrip() for fold in folds)
        text.append(first)
        if others != before:
            text += [(FOLD + other).rstrip() for other in others]
        before = others
    return "\n".join(text)
