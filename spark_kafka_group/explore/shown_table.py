"""Rows as notebooks, terminals and Spark show them. Names and values in them come from strangers."""

from __future__ import annotations

import html
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from spark_kafka_group.errors import OptionError
from spark_kafka_group.text import text_table
from spark_kafka_group.text.foreign_text import excerpt, printable
from spark_kafka_group.tools import formatting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WIDTH = 80  # columns of a terminal
LONGEST_CELL = 300  # the most characters of a cell on a page
LONGEST_NAME = 32  # the most characters of a topic or a group before other facts on a line

R = TypeVar("R")


@dataclass(frozen=True, repr=False)
class Table(Generic[R]):
    """Rows of one kind: a sequence that shows itself as a table, at most 80 columns wide, or as HTML in a notebook."""

    rows: tuple[R, ...]

    ddl: ClassVar[str]  # columns of :meth:`to_df`, as Spark writes a schema

    wide: ClassVar[frozenset[str]] = frozenset()  # headers of columns that only a page has room for, not a terminal

    def title(self) -> str:
        """A line above the table."""
        raise NotImplementedError

    def remark(self) -> str:
        """A sentence below the table about facts that are missing; empty without one."""
        return ""

    def headers(self) -> Sequence[str]:
        """Names of the columns that are shown."""
        raise NotImplementedError

    def cells(self, row: R) -> Sequence[object]:
        """A row as it is shown, a value for each header."""
        raise NotImplementedError

    def values(self, row: R) -> tuple[Any, ...]:
        """A row as Spark takes it, a value for each column of :attr:`ddl`."""
        raise NotImplementedError

    def to_df(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame. Works over Spark Connect too."""
        return spark.createDataFrame([self.values(row) for row in self.rows], self.ddl)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> R:
        return self.rows[index]

    def __str__(self) -> str:
        narrow = [header not in self.wide for header in self.headers()]
        rows = (tuple(itertools.compress(self.cells(row), narrow)) for row in self.rows)
        table = text_table.narrowed(list(itertools.compress(self.headers(), narrow)), rows, WIDTH, shown)
        remark = textwrap.wrap(printable(self.remark()), WIDTH)
        return "\n".join([text_table.clipped(self.title(), WIDTH), table, *remark])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        remark = f"<p>{escaped(self.remark())}</p>" if self.remark() else ""
        return f"<p>{escaped(self.title())}</p>{as_html(self.headers(), map(self.cells, self.rows))}{remark}"


class Laid(str):
    """Text that is laid out in lines, which a page shows whole."""

    __slots__ = ()


def as_html(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of HTML, with everything in it escaped: numbers to the right, all else to the left."""
    lines = [list(row) for row in rows]
    numbers = [_are_numbers([line[place] for line in lines]) for place in range(len(headers))]
    head = [_element("th", escaped(header), right) for header, right in zip(headers, numbers, strict=True)]
    rest = "".join(f"<tr>{''.join(map(_element_of_row, line, numbers))}</tr>" for line in lines)
    return f"<table><thead><tr>{''.join(head)}</tr></thead><tbody>{rest}</tbody></table>"


def _element_of_row(cell: object, of_numbers: bool) -> str:
    return _element("td", _cell(cell), of_numbers if cell is None else _is_number(cell))


def _element(name: str, content: str, right: bool) -> str:
    """Jupyter's own style has all of them at the right."""
    return f'<{name} style="text-align:{"right" if right else "left"}">{content}</{name}>'


def _are_numbers(cells: Sequence[object]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(map(_is_number, known))


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _cell(cell: object) -> str:
    if isinstance(cell, Laid):
        text = "\n".join(map(escaped, cell.split("\n")))
        return f'<pre style="margin:0;background:none;text-align:left">{text}</pre>'
    return escaped(text_table.clipped(shown(cell), LONGEST_CELL))


def shown(cell: object) -> str:
    """A value on one line, which steers no terminal."""
    match cell:
        case float():
            return f"{cell:,.1f}"
        case int():
            return f"{cell:,}"
        case datetime():
            return cell.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    return text_table.shown(cell)


def short_name(name: str) -> str:
    """A name that leaves room on a line for the facts behind it."""
    return text_table.shortened(printable(name), LONGEST_NAME)


def escaped(text: str) -> str:
    """`text` in HTML."""
    return html.escape(printable(text))


def moment(timestamp_ms: float | None) -> datetime | None:
    """A time in UTC; None where there is none, or no calendar has it."""
    return None if timestamp_ms is None or timestamp_ms < 0 else formatting.moment(timestamp_ms)


def milliseconds(name: str, time: datetime) -> int:
    """Since the epoch; a time without a zone is of this machine's, as everywhere in Python. Raises OptionError when the
    argument of this name is none, for example a text."""
    try:
        return round(time.timestamp() * 1000)
    except (AttributeError, ValueError, OverflowError, OSError) as error:
        raise OptionError(f"{name} ({excerpt(time)}) must be a datetime of the years 2 to 9999: {error}") from error
