"""The columns of rows that are written, as Arrow: those of Spark's kafka sink, and originPartition.

Spark's are value, and where there are, key, topic, headers and partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.options.typed_values import BINARY, WITH_FIELDS
from spark_kafka_group.text.foreign_text import shortened

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_group.options.typed_values import WrittenColumn
    from spark_kafka_group.values.error_headers import Headers


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
    """Places of the columns in Spark's rows, and so in the Arrow batches of a task; None for one that there is not.

    `typed`: key and value, where they have to be encoded.
    """

    value: int
    key: int | None = None
    topic: int | None = None
    headers: int | None = None
    partition: int | None = None
    origin_partition: int | None = None
    typed: tuple[WrittenColumn, ...] = ()

    @classmethod
    def from_fields(cls, fields: Sequence[Any], options: SinkOptions) -> SinkColumns:
        """The columns that `options` have written. A name is found as it is, else in another case. `fields`: Spark's
        StructFields. Raises OptionError when a column is missing, is none that a record has, or has another type."""
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
            if found is not None and not (name in ("key", "value") and options.values.of_column(name).format != BINARY):
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
        return f"take to_json({given}), or set {name}Format to {WITH_FIELDS}"
    return f"cast it, as in CAST({given} AS {TYPES[name][1].split()[0].upper()})"


SCHEMA = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, "
    "originPartition int"
)
NAMES = ("topic", "key", "value", "headers", "partition", "originPartition")
MOST_ROWS, MOST_BYTES = 1000, 1024 * 1024  # rows that are kept together, unless they are the last ones


class OutputRow(NamedTuple):
    """A record for a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None  # that the topic must have; None leaves it to the key
    # Instead: where the record was in another topic. It goes to the partition of that number, modulo how many this
    # topic has.
    origin_partition: int | None = None


class OutputRows:
    """Rows that wait to be written together."""

    def __init__(self) -> None:
        self._rows: list[OutputRow] = []
        self._bytes = 0

    def add(self, rows: Sequence[OutputRow]) -> None:
        """Behind those that wait."""
        self._rows += rows
        self._bytes += sum(len(row.key or b"") + len(row.value or b"") for row in rows)

    @property
    def due(self) -> bool:
        """Whether there are many."""
        return len(self._rows) >= MOST_ROWS or self._bytes >= MOST_BYTES

    def take_rows(self) -> list[OutputRow]:
        """All of them, which then wait no more."""
        rows, self._rows, self._bytes = self._rows, [], 0
        return rows


def fields() -> list[pa.Field]:
    """The columns of :data:`SCHEMA`, as Arrow."""
    import pyarrow as pa

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return [
        pa.field("topic", pa.string()), pa.field("key", pa.binary()), pa.field("value", pa.binary()),
        pa.field("headers", headers), pa.field("partition", pa.int32()), pa.field("originPartition", pa.int32()),
    ]  # fmt: skip


def sink_columns() -> SinkColumns:
    """The columns for a task that writes by itself."""

    topic, key, value, headers, partition, origin = range(len(NAMES))
    return SinkColumns(value, key, topic, headers, partition, origin)


def arrow_batch(rows: Iterable[OutputRow]) -> pa.RecordBatch:
    """Rows, at least one, as the sink takes them."""
    import pyarrow as pa

    schema = pa.schema(fields())
    arrays = [pa.array(list(column), f.type) for column, f in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
