"""Keys and values that handlers return as objects: encoded in the task, with the sink's schemas and encoders."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, Row, StructField, StructType

from spark_kafka_group.errors import GroupKafkaError, ProcessingError, UnwritableRowError
from spark_kafka_group.executor.schemas.arrow_types import arrow_type
from spark_kafka_group.executor.values.framing import ID_HEADERS
from spark_kafka_group.executor.values.value_encoder import ValueEncoder
from spark_kafka_group.executor.writing.row_schemas import column_of_schema
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.options.typed_values import BINARY, JSON, STRING, WrittenColumn
from spark_kafka_group.processing.record import ProducerRecord, Record
from spark_kafka_group.text.foreign_text import shortened

MOST_KEPT = 1000
"""Encoders that are kept; JSON has one for each type that its values have."""


class OutputEncoder:
    """Encodes what the handlers of one task return. Thread-safe."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        formats = {name: options.values.of_column(name).format for name in ("key", "value")}
        self._names = [name for name, kind in formats.items() if kind not in (BINARY, STRING)]
        self._columns: dict[tuple[str, str], WrittenColumn] = {}
        self._encoders: dict[object, ValueEncoder] = {}
        self._lock = threading.Lock()

    def encoded(self, result: object) -> object:
        """A result of a handler with the keys and values of its records as bytes.

        Raises UnwritableRowError for a record that does not fit its schema, ProcessingError where there is no schema.
        """
        if not isinstance(result, tuple) or isinstance(result, Record):
            return result
        with self._lock:
            return tuple(self._record(one) if isinstance(one, ProducerRecord) else one for one in result)

    def _record(self, record: ProducerRecord) -> ProducerRecord:
        topic = record.topic or self._options.writing.topic
        if topic is None:
            return record  # it is refused with its other fields
        headers, made = list(record.headers), {}
        for name in self._names:
            value = getattr(record, name)
            if value is not None:
                encoder, array = self._encoder(name, topic, value)
                made[name] = encoder.encoded(array)[0].as_py()
                if encoder.header is not None:
                    own = ID_HEADERS[name]
                    headers = [*(header for header in headers if header[0] != own), (own, encoder.header)]
        return replace(record, headers=headers, **made)

    def _encoder(self, name: str, topic: str, value: object) -> tuple[ValueEncoder, pa.Array]:
        """The encoder of a value, and the value as a column."""
        column = self._column(name, topic)
        missing: list[str] = []
        try:
            if column.format == JSON:
                array = pa.array([value.asDict(recursive=True) if isinstance(value, Row) else value])
                key: object = (name, topic, str(array.type))
            else:
                taken = _taken(value, column.type, "", missing)
                key = name, topic, tuple(missing)
                array = pa.array([taken], arrow_type(_without(column.type, missing)))
            if key not in self._encoders:
                kind = from_arrow_type(array.type) if column.format == JSON else _without(column.type, missing)
                assert column.schema is not None
                if len(self._encoders) >= MOST_KEPT:
                    self._encoders.clear()
                encoder = self._options.writing.encoder
                self._encoders[key] = ValueEncoder(replace(column, type=kind), column.schema, encoder)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise UnwritableRowError(f"a record does not fit its schema: {name}: {shortened(str(error))}") from error
        return self._encoders[key], array

    def _column(self, name: str, topic: str) -> WrittenColumn:
        if (name, topic) not in self._columns:
            try:
                self._columns[name, topic] = column_of_schema(name, topic, self._options)
            except GroupKafkaError as error:
                raise ProcessingError(f"what handlers return cannot be written to topic {topic}: {error}") from error
        return self._columns[name, topic]


def _taken(value: Any, spark: DataType, name: str, missing: list[str] | None) -> Any:
    """A value as Arrow takes it, of which every field is one of the type.

    `missing`: gets the dotted names of fields that are not there; None in arrays and maps.
    Raises ValueError.
    """
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(spark, StructType) and isinstance(value, Mapping):
        more = [str(field) for field in value if field not in spark.names]
        if more:
            raise ValueError(f"it has the field {f'{name}.{more[0]}'.lstrip('.')}, and the schema has not")
        found = {}
        for field in spark.fields:
            path = f"{name}.{field.name}".lstrip(".")
            if field.name in value:
                found[field.name] = _taken(value[field.name], field.dataType, path, missing)
            elif missing is not None:
                missing.append(path)
        return found
    if isinstance(spark, ArrayType) and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_taken(item, spark.elementType, name, None) for item in value]
    if isinstance(spark, MapType) and isinstance(value, Mapping):
        return [(key, _taken(item, spark.valueType, name, None)) for key, item in value.items()]
    return value


def _without(spark: DataType, missing: Sequence[str], name: str = "") -> DataType:
    """The type without some fields, so that these have their defaults."""
    if not missing or not isinstance(spark, StructType):
        return spark
    paths = [f"{name}.{field.name}".lstrip(".") for field in spark.fields]
    return StructType(
        [
            StructField(field.name, _without(field.dataType, missing, path), field.nullable)
            for field, path in zip(spark.fields, paths, strict=True)
            if path not in missing
        ]
    )
