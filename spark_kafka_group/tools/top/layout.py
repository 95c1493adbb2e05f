"""Groups, or the partitions of one, as a table of a terminal or of a pipe, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.text.text_table import GAP, counted, duration, narrowed, shortened, shown, taken
from spark_kafka_group.tools.describe import behind, lag_not_known
from spark_kafka_group.tools.formatting import query_and_batch, table
from spark_kafka_group.tools.top.rates import GroupLook, RateRow, Speed, TopicPartitionRow, group_rows, partition_rows
from spark_kafka_group.values.commit_metadata import Writer

SORTS = ("lag", "rate", "group")
LEAST_OF_NAMES = 8
"""Characters that a column of names keeps; with less room the last columns are left out."""
UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
WHOLE_BELOW = 1_000_000
GROUP_HEADERS = ("GROUP", "STATE", "MEMBERS", "LAG", "COMMIT/S", "NEW/S", "DONE-IN", "QUERY")
LAG_S, BEHIND = "LAG-S", "BEHIND"
PARTITION_HEADERS = ("TOPIC", "PART", "LAG", LAG_S, "COMMIT/S", "NEW/S", "DONE-IN", "MEMBER", "QUERY")


@dataclass(frozen=True)
class GroupsTable:
    """A summary, and rows in order.

    Attributes
    ----------
    name
        Of the one group, which stands before the summary.
    facts
        Of the summary; the lag is the last.
    """

    name: str
    facts: tuple[str, ...]
    headers: Sequence[str]
    cells: tuple[tuple[Any, ...], ...]
    objects: tuple[dict[str, Any], ...]

    @property
    def summary(self) -> str:
        """All facts."""
        return ", ".join(self.facts)

    def heading(self, width: int) -> str:
        """Name and facts, in `width` columns if the lag alone has room there.

        The name is shortened for the facts' sake. Then facts go for the lag's sake, and then the name.
        """
        name, least = "", 0
        if self.name:
            name = printable(self.name)
            least = min(taken(name), LEAST_OF_NAMES) + len(": ")
        facts = list(self.facts)
        while len(facts) > 1 and least + taken(", ".join(facts)) > width:
            del facts[-2]
        summary = ", ".join(facts)
        room = width - taken(summary) - len(": ")
        return f"{shortened(name, room)}: {summary}" if name and least + taken(summary) <= width else summary

    def for_screen(self, width: int) -> tuple[str, list[str]]:
        """Header and rows of at most `width` columns; large numbers and times are short."""
        if LAG_S in self.headers:
            return self._with_durations(self.headers.index(LAG_S)).for_screen(width)
        count = len(self.headers)
        while count > 1 and self._least(count) > width:
            count -= 1
        rows = [row[:count] for row in self.cells]
        head, *lines = narrowed(self.headers[:count], rows, width, brief).split("\n")
        return head, lines

    def whole(self) -> str:
        """Header and rows with all digits."""
        return table(self.headers, self.cells)

    def as_json(self) -> str:
        """An object a line."""
        return "\n".join(map(json.dumps, self.objects))

    def _with_durations(self, place: int) -> GroupsTable:
        headers = [*self.headers[:place], BEHIND, *self.headers[place + 1 :]]
        cells = tuple((*row[:place], duration(row[place]), *row[place + 1 :]) for row in self.cells)
        return replace(self, headers=headers, cells=cells)

    def _least(self, count: int) -> int:
        widths = (self._least_of(number) for number in range(count))
        return sum(widths) + len(GAP) * (count - 1)

    def _least_of(self, number: int) -> int:
        values = [row[number] for row in self.cells]
        width = max(taken(text) for text in (self.headers[number], *map(brief, values)))
        return min(width, LEAST_OF_NAMES) if any(isinstance(value, str) for value in values) else width


def of_groups(looks: tuple[GroupLook, ...], sort: str) -> GroupsTable:
    """All groups."""
    rows = sorted(group_rows(looks), key=lambda row: _place(sort, row.group, row.lag, row.speed))
    known = [row.lag for row in rows if row.lag is not None]
    lag = f"{sum(known):,} behind" if known else lag_not_known(any(row.partitions for row in rows))
    facts = (counted(len(rows), "group"), counted(sum(row.members for row in rows), "member"), lag)
    return GroupsTable("", facts, GROUP_HEADERS, tuple(map(_group_cells, rows)), tuple(map(_group_object, rows)))


def of_partitions(looks: tuple[GroupLook, ...], sort: str) -> GroupsTable:
    """The partitions of the one group."""
    ((name, group),) = looks[-1].groups.items()
    rows = sorted(partition_rows(looks, name), key=lambda row: _place(sort, row.seen.tp, row.seen.lag, row.speed))
    unknown = sum(row.seen.lag is None for row in rows)
    lag = behind(row.seen for row in rows)
    if 0 < unknown < len(rows):
        lag = f"{lag}, {unknown:,} of {len(rows):,} partitions not known"
    facts = (group.state, counted(group.members, "member"), lag)
    return GroupsTable(
        name, facts, PARTITION_HEADERS, tuple(map(_partition_cells, rows)), tuple(_objects_of(name, rows))
    )


def brief(value: object) -> str:
    """A value in few characters: numbers from a million on with three digits."""
    if not isinstance(value, int | float):
        return shown(value)
    for unit, letter in UNITS:
        if value >= unit:
            return f"{math.floor(value / unit * 100) / 100:.2f}"[:4].rstrip(".") + letter
    return f"{value:,.0f}"


def _place(sort: str, name: Any, lag: int | None, speed: Speed) -> tuple[Any, ...]:
    """Rows sort by this: most first, unknown last, then by name."""
    by = {"lag": lag, "rate": speed.committed}.get(sort)
    return (-by if by is not None else 1, name) if sort != "group" else (name,)


def _group_cells(row: RateRow) -> tuple[object, ...]:
    speed = row.speed
    done = duration(speed.seconds_for(row.lag))
    return (row.group, row.state, row.members, row.lag, _rounded(speed.committed), _rounded(speed.produced), done,
            row.writer and row.writer.query_id)  # fmt: skip


def _partition_cells(row: TopicPartitionRow) -> tuple[object, ...]:
    seen, speed = row.seen, row.speed
    done = duration(speed.seconds_for(seen.lag))
    owner = seen.owner and (seen.owner.instance_id or seen.owner.member_id)
    return (*seen.tp, seen.lag, _rounded(seen.lag_s), _rounded(speed.committed), _rounded(speed.produced), done, owner,
            seen.note and query_and_batch(seen.note))  # fmt: skip


def _group_object(row: RateRow) -> dict[str, Any]:
    return {"kind": "group", "group": row.group, "state": row.state, "members": row.members,
            "partitions": row.partitions, "lag": row.lag, **_of_speed(row.speed, row.lag),
            **_of_writer(row.writer)}  # fmt: skip


def _objects_of(group: str, rows: Sequence[TopicPartitionRow]) -> list[dict[str, Any]]:
    return [
        {"kind": "partition", "group": group, **row.seen.tp._asdict(), "lag": row.seen.lag,
         "lag_seconds": row.seen.lag_s, **_of_speed(row.speed, row.seen.lag),
         "consumer_id": row.seen.owner and row.seen.owner.member_id, **_of_writer(row.seen.note)}
        for row in rows
    ]  # fmt: skip


def _of_speed(speed: Speed, lag: int | None) -> dict[str, float | None]:
    seconds = speed.seconds_for(lag)
    return {
        "committed_per_second": _rounded(speed.committed),
        "produced_per_second": _rounded(speed.produced),
        "seconds_to_end": None if seconds is None or math.isinf(seconds) else round(seconds, 1),
    }


def _of_writer(writer: Writer | None) -> dict[str, Any]:
    if writer is None:
        return {"reader": None, "generation": None, "batch": None}
    return {"reader": writer.query_id, "generation": writer.generation, "batch": writer.batch}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
