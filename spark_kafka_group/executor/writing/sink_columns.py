"""The columns of rows that are written: those of Spark's kafka sink, which are value, and where there are, key, topic,
headers and partition; and originPartition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.text.json_text import shortened

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT_OR_BYTES = ("string", "char", "varchar", "binary")
_HEADERS = "array<struct<key:string,value:binary>>"
TYPES = {
    "value": (_TEXT_OR_BYTES, "string or binary"),
    "key": (_TEXT_OR_BYTES, "string or binary"),
    "topic": (("string", "char", "varchar"), "string"),
    "headers": ((_HEADERS,), "array<struct<key: string, value: binary>>"),
    "partition": (("int",), "int"),
    "originPartition": (("int",), "int"),
}
"""Spark's types that a column may have, and how an error names them."""
OF_THE_SOURCE = ("offset", "timestamp", "timestampType")
"""Further columns of rows that were read from Kafka; Kafka gives a record that is written others."""


@dataclass(frozen=True)
class SinkColumns:
    """Places of the columns in Spark's rows, and so in the Arrow batches of a task; None for one that there is not."""

    value: int
    key: int | None = None
    topic: int | None = None
    headers: int | None = None
    partition: int | None = None
    origin_partition: int | None = None

    @classmethod
    def from_fields(cls, fields: Sequence[Any], options: SinkOptions) -> SinkColumns:
        """The columns that `options` have written. A name is found as it is, else in another case.

        `fields`: Spark's StructFields.
        Raises OptionError when a column is missing, is none that a record has, or has another type.
        """
        places = {name: _place(name, fields) for name in TYPES}
        known = {place for place in places.values() if place is not None}
        for place, field in enumerate(fields):
            if place not in known and field.name.lower() not in map(str.lower, OF_THE_SOURCE):
                raise OptionError(
                    f"column {shortened(field.name)} is no part of a record: leave it out, or put it into column "
                    f"value, as in selectExpr('to_json(struct(*)) AS value'); a record has {', '.join(TYPES)}"
                )
        if places["value"] is None:
            raise OptionError(
                "there is no column value, which every record needs: name a column so, as in "
                "selectExpr('to_json(struct(*)) AS value')"
            )
        if options.writing.topic is not None:
            places["topic"] = None
        elif places["topic"] is None:
            raise OptionError("no topic is named: set option topic, or give the rows a column topic")
        if not options.writing.include_headers:
            places["headers"] = None
        for name, found in places.items():
            if found is not None:
                _check_type(name, fields[found])
        places["origin_partition"] = places.pop("originPartition")
        return cls(**places)  # type: ignore[arg-type]

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        """A column of one of the task's Arrow batches."""
        place: int | None = getattr(self, name)
        return None if place is None else batch.column(place)


def _place(name: str, fields: Sequence[Any]) -> int | None:
    exact = [place for place, field in enumerate(fields) if field.name == name]
    alike = [place for place, field in enumerate(fields) if field.name.lower() == name.lower()]
    found = exact or alike
    if len(found) > 1:
        raise OptionError(f"there are {len(found)} columns named {name}: leave one")
    return found[0] if found else None


def _check_type(name: str, field: Any) -> None:
    types, shown = TYPES[name]
    kind = field.dataType.simpleString()
    if name == "headers":
        taken = kind.lower() in types
    else:
        taken = kind.partition("(")[0].partition(" ")[0] in types  # varchar(10), string collate UNICODE_CI
    if not taken:
        raise OptionError(
            f"column {field.name} has the type {shortened(kind)} and must be {shown}: {_how(name, field.name, kind)}"
        )


def _how(name: str, given: str, kind: str) -> str:
    """How to change a type."""
    if name == "headers":
        return "cast it"
    if name in ("key", "value") and kind.startswith(("struct", "map", "array", "variant")):
        return f"take to_json({given})"
    return f"cast it, as in CAST({given} AS {TYPES[name][1].split()[0].upper()})"
