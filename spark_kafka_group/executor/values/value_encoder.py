"""A column of the sink to keys or values as bytes; the twin of the encoder is loaded here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_kafka_group.errors import UnwritableRowError
from spark_kafka_group.executor import compiled_twin
from spark_kafka_group.executor.values.avro_plan import avro_plan
from spark_kafka_group.executor.values.framing import header_of, indexes_of
from spark_kafka_group.executor.values.json_plan import json_plan
from spark_kafka_group.executor.values.write_plan import Misfit, WritePlan, bound, reason
from spark_kafka_group.options.typed_values import (
    AVRO,
    CONFLUENT,
    CONFLUENT_HEADER,
    JSON,
    PROTOBUF,
    SchemaToWrite,
    WrittenColumn,
)

TWINS = compiled_twin.Twins(
    __name__.rpartition(".")[0],
    "_write_c",
    "_write_py",
    "encoder",
    "encoder=c: the compiled encoder of values was not built",
    "values are encoded",
)


class TooManyBytesError(Exception):
    """Raised where the values of some rows are too many bytes for one column."""


class ValueEncoder:
    """Encodes a column with one schema.

    `header`: the header that goes with each value; None without ``confluent-header``.
    `may_fail`: whether there may be rows that do not fit.
    Raises ValueError when the schema cannot take the column.
    """

    def __init__(self, column: WrittenColumn, schema: SchemaToWrite, encoder: str = "auto") -> None:
        self._name = column.name
        self._plan = plan_of(column, schema)
        self._twin: Any = TWINS.load(encoder).ColumnEncoder(self._plan)
        indexes = indexes_of(schema.path) if column.format == PROTOBUF else b""
        is_framed, has_header = column.framing == CONFLUENT, column.framing == CONFLUENT_HEADER
        self._prefix = b"\0" + (schema.id or 0).to_bytes(4) + indexes if is_framed else b""
        self.may_fail = self._plan.may_fail
        self.header = header_of(schema.id, schema.guid) + indexes if has_header else None

    def encoded(self, column: pa.Array) -> pa.Array:
        """The column as bytes; null is null. Raises UnwritableRowError where a row does not fit,
        TooManyBytesError where fewer rows may fit."""
        arrays = bound(self._plan, column)
        made, unfit = self._twin.encode(arrays, len(column), self._prefix)
        if unfit is None:
            return made
        if unfit.problem == Misfit.LARGE and len(column) > 1:
            raise TooManyBytesError
        name = self._plan.steps[unfit.step].name
        field = f", field {name}" if name else ""
        raise UnwritableRowError(
            f"a row does not fit its schema: column {self._name}{field}: {reason(self._plan, arrays, unfit)}"
        )


def plan_of(column: WrittenColumn, schema: SchemaToWrite) -> WritePlan:
    """How a column is written. Raises ValueError when the schema cannot take it."""
    if column.format == JSON:
        return json_plan(column.type, column.time_zone)
    if column.format == AVRO:
        return avro_plan(column.type, schema.text)
    from spark_kafka_group.executor.values.protobuf_plan import protobuf_plan

    return protobuf_plan(column.type, schema.text)
