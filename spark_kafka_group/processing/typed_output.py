"""Keys and values that handlers return as objects: encoded in the task, with the sink's schemas and encoders."""

from __future__ import annotations

import datetime
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    Row,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from spark_kafka_group.errors import GroupKafkaError, ProcessingError, UnwritableRowError
from spark_kafka_group.executor.schemas.arrow_types import arrow_type
from spark_kafka_group.executor.values.framing import ID_HEADERS
from spark_kafka_group.executor.values.json_types import MAX_DEPTH
from spark_kafka_group.executor.values.value_encoder import ValueEncoder
from spark_kafka_group.executor.values.write_plan import part_of
from spark_kafka_group.executor.writing.row_schemas import OutputFormats, column_of_task, type_of_objects
from spark_kafka_group.options.typed_values import JSON, PROTOBUF, WrittenColumn
from spark_kafka_group.processing.record import ProducerRecord
from spark_kafka_group.text.foreign_text import shortened

MOST_KEPT = 1000
"""Encoders that are kept; JSON has one for each type that its values have."""
MOST_IN_ITSELF = 10
"""How often a message of Protobuf may be in itself, as for from_protobuf."""

NOT_TAKEN = (ValueError, TypeError, ArithmeticError, pa.ArrowException)
"""What is raised for a value that an Arrow column, or a type of Spark, does not have."""

Encoder = tuple[ValueEncoder, pa.DataType]


class OutputEncoder:
    """Encodes what the handlers of one task return. Thread-safe."""

    def __init__(self, formats: OutputFormats) -> None:
        self._options = formats.options
        self._given = {column.name: column for column in formats.columns}
        self._columns: dict[tuple[str, str], list[WrittenColumn]] = {}
        self._deepest: set[tuple[str, str]] = set()
        self._encoders: dict[object, Encoder] = {}
        self._lock = threading.Lock()

    def encoded(self, records: Sequence[ProducerRecord]) -> list[ProducerRecord]:
        """Records with keys and values as bytes; waits for a registry as tasks of the sink do.

        Raises UnwritableRowError for a record that does not fit its schema, ProcessingError where there is no schema.
        """
        with self._lock:
            return [self._record(record) for record in records]

    def _record(self, record: ProducerRecord) -> ProducerRecord:
        topic = record.topic or self._options.writing.topic or ""
        headers, made = list(record.headers), {}
        for name in self._given:
            value = getattr(record, name)
            if value is not None:
                encoder, array = self._array(name, topic, value)
                made[name] = encoder.encoded(array)[0].as_py()
                if encoder.header is not None:
                    own = ID_HEADERS[name]
                    headers = [*(header for header in headers if header[0] != own), (own, encoder.header)]
        return replace(record, headers=headers, **made)

    def _array(self, name: str, topic: str, value: object) -> tuple[ValueEncoder, pa.Array]:
        """The encoder of a value, and the value as a column."""
        columns = self._of_topic(name, topic)
        try:
            if columns[0].format == JSON:
                return self._of_json(columns[0], topic, value)
            return self._of_schema(columns, topic, value)
        except NOT_TAKEN as error:
            raise UnwritableRowError(
                f"a record does not fit its schema: {name}{error if isinstance(error, _UnfitError) else f': {error}'}"
            ) from error

    def _of_json(self, column: WrittenColumn, topic: str, value: object) -> tuple[ValueEncoder, pa.Array]:
        """A value as a column of the type that Arrow finds, in the units of Spark's types."""
        plain = _plain(value, "", 0)
        try:
            array = pa.array([plain])
            key = column.name, topic, str(array.type)
            kind = None if key in self._encoders else from_arrow_type(array.type)
        except NOT_TAKEN:
            raise _unfit_json(plain, "") from None
        if kind is not None:
            self._keep(key, column, kind)
        encoder, written = self._encoders[key]
        if written != array.type:
            array = array.cast(written, safe=False)  # a time of another library has nanoseconds
        return encoder, array

    def _of_schema(self, columns: list[WrittenColumn], topic: str, value: object) -> tuple[ValueEncoder, pa.Array]:
        missing: dict[str, None] = {}
        depth = 0
        while True:
            try:
                taken = _taken(value, columns[depth].type, "", missing)
                break
            except _UnknownFieldError:
                depth += 1
                if depth == len(columns) and not self._deeper(columns, topic):
                    raise
                missing.clear()
        column = columns[depth]
        key = column.name, topic, depth, tuple(missing)
        if key not in self._encoders:
            self._keep(key, column, _without(column.type, missing))
        encoder, kind = self._encoders[key]
        try:
            return encoder, pa.array([taken], kind)
        except NOT_TAKEN:
            for path, leaf, its in _leaves(taken, column.type, ""):
                try:
                    pa.array([leaf], its)
                except NOT_TAKEN as error:
                    raise _UnfitError(path, str(error)) from None
            raise

    def _deeper(self, columns: list[WrittenColumn], topic: str) -> bool:
        """Add the column whose messages are in themselves once more, if there is another type then."""
        last = columns[-1]
        if last.format != PROTOBUF or len(columns) == MOST_IN_ITSELF or (last.name, topic) in self._deepest:
            return False
        assert last.schema is not None
        try:
            deeper = type_of_objects(last.format, last.schema, len(columns) + 1)
        except ValueError:  # too large
            deeper = last.type
        if deeper == last.type:
            self._deepest.add((last.name, topic))
            return False
        columns.append(replace(last, type=deeper))
        return True

    def _keep(self, key: object, column: WrittenColumn, kind: DataType) -> None:
        """Make the encoder of a type."""
        assert column.schema is not None
        if len(self._encoders) >= MOST_KEPT:
            self._encoders.clear()
        encoder = ValueEncoder(replace(column, type=kind), column.schema, self._options.writing.encoder)
        self._encoders[key] = encoder, arrow_type(kind)

    def _of_topic(self, name: str, topic: str) -> list[WrittenColumn]:
        """The column, and those whose messages are in themselves more often."""
        if (name, topic) not in self._columns:
            try:
                self._columns[name, topic] = [column_of_task(self._given[name], topic, self._options)]
            except GroupKafkaError as error:
                raise ProcessingError(f"what handlers return cannot be written to topic {topic}: {error}") from error
        return self._columns[name, topic]


class _UnfitError(ValueError):
    """Raised for a part of a value, with its dotted name, and what is wrong with it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{f', field {path}' if path else ''}: {why}")


class _UnknownFieldError(_UnfitError):
    """Raised for a field that the type does not have."""


BOOLS = (bool, np.bool_)
LEAVES: dict[type[DataType], tuple[tuple[type, ...], str]] = {
    BooleanType: (BOOLS, "a bool"),
    **dict.fromkeys((ByteType, ShortType, IntegerType, LongType), ((Integral,), "an int")),
    **dict.fromkeys((FloatType, DoubleType), ((Real,), "a float or an int")),
    DecimalType: ((Decimal, Integral), "a Decimal or an int"),
    StringType: ((str,), "a str"),
    BinaryType: ((bytes, bytearray), "bytes"),
    DateType: ((datetime.date,), "a date"),
    TimestampType: ((datetime.datetime,), "a datetime"),
    TimestampNTZType: ((datetime.datetime,), "a datetime"),
    TimeType: ((datetime.time,), "a time"),
    DayTimeIntervalType: ((datetime.timedelta,), "a timedelta"),
}
"""Of each type the objects that are written, and what messages call them."""


def _taken(value: Any, spark: DataType, path: str, missing: dict[str, None] | None) -> Any:
    """A value as Arrow takes it, of which every part is one of the type.

    `missing`: gets the dotted names of fields that are not there; None in arrays and maps.
    Raises _UnfitError: Arrow would cut 1.5 to 1, and take 5 for a time.
    """
    if value is None:
        return None
    if isinstance(spark, StructType):
        return _fields(value, spark, path, missing)
    if isinstance(spark, ArrayType):
        if not isinstance(value, Sequence | AbstractSet) or isinstance(value, str | bytes | bytearray):
            raise _unlike(value, "a list", path)
        inner = part_of(path, "element")
        return [_taken(item, spark.elementType, inner, None) for item in value]
    if isinstance(spark, MapType):
        if not isinstance(value, Mapping):
            raise _unlike(value, "a dict", path)
        of_key, of_value = part_of(path, "key"), part_of(path, "value")
        if None in value:
            raise _UnfitError(of_key, "it is None, and keys are not")
        return [
            (_taken(key, spark.keyType, of_key, None), _taken(item, spark.valueType, of_value, None))
            for key, item in value.items()
        ]
    return _leaf(value, spark, path)


def _leaf(value: Any, spark: DataType, path: str) -> Any:
    """A value that has no others in it."""
    kinds, wanted = LEAVES.get(type(spark), ((), "None"))
    is_one = isinstance(value, kinds) and (kinds == BOOLS or not isinstance(value, bool))
    if not is_one:
        raise _unlike(value, wanted, path)
    if isinstance(value, datetime.datetime):
        if isinstance(spark, DateType):
            raise _unlike(value, wanted, path)
        if isinstance(spark, TimestampType) and value.tzinfo is None:
            raise _UnfitError(path, f"{value} has no zone: give it one, as in datetime.now(UTC)")
        if isinstance(spark, TimestampNTZType) and value.tzinfo is not None:
            raise _UnfitError(path, f"{value} has a zone, and the schema's times have none: leave it out")
    if kinds == (Real,):
        return _real(value, spark, path)
    if kinds == BOOLS:
        return bool(value)
    return int(value) if isinstance(value, Integral) else value


def _real(value: Any, spark: DataType, path: str) -> float:
    """A float that does not become infinite where it is written."""
    try:
        real = float(value)
        struct.pack("<f" if isinstance(spark, FloatType) else "<d", real)
    except OverflowError:
        raise _UnfitError(path, f"{shortened(repr(value))} is out of range for a {spark.simpleString()}") from None
    return real


def _fields(value: Any, spark: StructType, path: str, missing: dict[str, None] | None) -> dict[str, Any]:
    given = _as_dict(value, path) if isinstance(value, Row) else value
    if not isinstance(given, Mapping):
        raise _unlike(value, "a dict or a Row", path)
    found = {}
    for field in spark.fields:
        inner = part_of(path, field.name)
        if field.name in given:
            found[field.name] = _taken(given[field.name], field.dataType, inner, missing)
        elif missing is not None:
            missing[inner] = None
    for name in given if len(given) > len(found) else ():
        if name not in found:
            raise _UnknownFieldError("", f"it has the field {part_of(path, name)}, and the schema has not")
    return found


def _as_dict(row: Row, path: str) -> dict[str, Any]:
    if not hasattr(row, "__fields__"):
        raise _UnfitError(path, f"{shortened(repr(row))} has no names: give them, as in Row(id=1)")
    return row.asDict()


def _unlike(value: object, wanted: str, path: str) -> _UnfitError:
    return _UnfitError(path, f"{shortened(repr(value))} is of type {type(value).__name__}: make it {wanted}")


def _leaves(taken: Any, spark: DataType, path: str) -> Iterator[tuple[str, Any, pa.DataType]]:
    """The parts of what ``_taken`` gives that have no others in them."""
    if isinstance(spark, StructType) and taken is not None:
        for field in spark.fields:
            yield from _leaves(taken.get(field.name), field.dataType, part_of(path, field.name))
    elif isinstance(spark, ArrayType) and taken is not None:
        for item in taken:
            yield from _leaves(item, spark.elementType, part_of(path, "element"))
    elif isinstance(spark, MapType) and taken is not None:
        for key, item in taken:
            yield from _leaves(key, spark.keyType, part_of(path, "key"))
            yield from _leaves(item, spark.valueType, part_of(path, "value"))
    elif taken is not None:
        yield path, taken, arrow_type(spark)


def _without(spark: DataType, missing: Mapping[str, None], name: str = "") -> DataType:
    """The type without some fields, so that these have their defaults."""
    if not missing or not isinstance(spark, StructType):
        return spark
    paths = [part_of(name, field.name) for field in spark.fields]
    return StructType(
        [
            StructField(field.name, _without(field.dataType, missing, path), field.nullable)
            for field, path in zip(spark.fields, paths, strict=True)
            if path not in missing
        ]
    )


# --- JSON -------------------------------------------------------------------------------------------------------------


def _plain(value: object, path: str, depth: int) -> object:
    """A value whose objects are dicts, and whose depth is one that Arrow stands."""
    if depth > MAX_DEPTH:
        raise _UnfitError("", f"JSON is written of at most {MAX_DEPTH} levels")
    if isinstance(value, Row):
        value = _as_dict(value, path)
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise _unlike(name, "a str, as JSON's names are", path)
        return {name: _plain(item, part_of(path, name), depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple | AbstractSet):
        return [_plain(item, path, depth + 1) for item in value]
    return value


def _unfit_json(plain: object, path: str) -> _UnfitError:
    """What is wrong with a value, and the dotted name of the smallest part of it that has no type."""
    for name, item in plain.items() if isinstance(plain, dict) else ():
        try:
            from_arrow_type(pa.array([item]).type)
        except NOT_TAKEN:
            return _unfit_json(item, part_of(path, name))
    try:
        pa.array([plain])
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        return _UnfitError(path, str(error))
    return _UnfitError(path, f"{shortened(repr(plain))} is of a type that is not written as JSON: make it a str")
