"""JSON to an Arrow column in plain Python, by the rules of from_json: Spark's ``JacksonParser``, PERMISSIVE.

The exact twin: the compiled one decodes what is plain and certain, and hands each other document to this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.schemas.arrow_types import arrow_type, chosen, nullable
from spark_kafka_group.executor.values import json_types
from spark_kafka_group.executor.values.java_numbers import decimal_of, double_as_text, float_of
from spark_kafka_group.executor.values.java_times import Zone, date_of, local_timestamp_of, timestamp_of, zone_of
from spark_kafka_group.executor.values.json_tokens import (
    END_ARRAY,
    END_OBJECT,
    ENDS,
    FALSE,
    FLOAT,
    INT,
    NAME,
    NULL,
    START_ARRAY,
    START_OBJECT,
    STRING,
    TRUE,
    BadJsonError,
    JsonTokens,
    as_spark,
)
from spark_kafka_group.executor.values.value_contract import EXPANDED, LARGEST_BYTES, LARGEST_TIMES, NO_LIMIT, Malformed

PIECE_BYTES = 1 << 20  # of documents and their columns: so much is Python's objects at once
FRAME_SIZE = 5  # a zero byte and the schema's id
INTEGER_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
NOT_FINITE = {
    "NaN": float("nan"),
    "+INF": float("inf"),
    "+Infinity": float("inf"),
    "Infinity": float("inf"),
    "-INF": float("-inf"),
    "-Infinity": float("-inf"),
}
SHOWN = 60

Converter = Callable[[JsonTokens], Any]


class PartialError(Exception):
    """Raised by a struct, map or array with a part that does not fit: the value has null there, or leaves it out."""

    def __init__(self, value: Any, cause: BadJsonError) -> None:
        super().__init__(cause.reason)
        self.value = value
        self.cause = cause


class JsonDecoder:
    """Decodes a column of JSON documents.

    Parameters
    ----------
    spark_type
        A struct, array or map, as from_json takes it.
    wanted
        Dotted names of the fields to build, or None for all. Others are skipped as unknown fields are.
    framed
        Whether each value begins with a zero byte and a schema id of four bytes.
    time_zone
        The session's time zone: of timestamps without a zone.

    Raises
    ------
    ValueError
        For a type that from_json does not read, or that lacks a wanted field.
    OptionError
        For a zone that is unknown here.
    """

    def __init__(
        self, spark_type: DataType, wanted: tuple[str, ...] | None = None, framed: bool = False, time_zone: str = "UTC"
    ) -> None:
        json_types.check(spark_type)
        self.spark_type = nullable(chosen(spark_type, wanted))
        self.type = arrow_type(self.spark_type)
        zone = zone_of(time_zone)
        if zone is None:
            raise OptionError(
                f"timeZone ({time_zone}) is no zone that Python knows: take one such as Europe/Berlin, or install "
                f"tzdata for the Python of the driver and the executors"
            )
        self._framed = framed
        self._width = _width(self.spark_type)
        self._document = document_reader(self.spark_type, zone)

    def decode(
        self, values: pa.Array, ids: Sequence[int | str | None] | None = None, most_bytes: int = NO_LIMIT
    ) -> tuple[pa.Array, list[Malformed]]:
        """The column, and its malformed rows, in their order.

        A malformed row has what from_json gives for it: the fields that fit, and null if there is none. A schema id is
        told where it is a number.
        """
        pieces: list[pa.Array] = []
        malformed: list[Malformed] = []
        row = taken = 0
        while row < len(values) and (not row or taken < most_bytes):
            found: list[Any] = []
            size = 0
            while row < len(values) and size < min(PIECE_BYTES, most_bytes):
                data = values[row].as_py()
                built, schema_id, error, inside = None, None, None, 0
                if data is not None:
                    built, schema_id, error = self._decode_one(data, ids[row] if ids else None)
                    inside = _size_inside(self.spark_type, built)
                    if inside > LARGEST_BYTES + LARGEST_TIMES * len(data):
                        built, error, inside = None, BadJsonError(EXPANDED), 0
                    size += len(data)
                found.append(built)
                size += self._width + inside
                if error is not None:
                    malformed.append(Malformed(row, schema_id, error.field, error.reason))
                row += 1
            pieces.append(pa.array(found, self.type))
            taken += pieces[-1].nbytes
        return pa.concat_arrays(pieces) if pieces else pa.array([], self.type), malformed

    def _decode_one(self, data: bytes, id_of_header: int | str | None) -> tuple[Any, int | None, BadJsonError | None]:
        """A value as Python has it for the column, the schema's id, and what is malformed about it."""
        schema_id = id_of_header if isinstance(id_of_header, int) else None
        if self._framed:
            if len(data) < FRAME_SIZE or data[0]:
                return None, None, BadJsonError("no zero byte and schema id before the document")
            schema_id = int.from_bytes(data[1:FRAME_SIZE], "big")
            data = data[FRAME_SIZE:]
        value, error = self._document(data)
        return value, schema_id, error


def _size_inside(spark: DataType, value: Any) -> int:
    """Bytes that a value takes in lists and maps of a column, about."""
    if value is None:
        return 0
    if isinstance(spark, StructType):
        return sum(_size_inside(spark[name].dataType, inner) for name, inner in value.items())
    if isinstance(spark, ArrayType):
        return len(value) * _width(spark.elementType) + sum(_size_inside(spark.elementType, item) for item in value)
    if isinstance(spark, MapType):
        return len(value) * _width(spark.valueType) + sum(_size_inside(spark.valueType, inner) for _, inner in value)
    return 0


def _width(spark: DataType) -> int:
    return sum(_width(field.dataType) for field in spark) if isinstance(spark, StructType) else 8


def document_reader(spark: DataType, zone: Zone) -> Callable[[bytes], tuple[Any, BadJsonError | None]]:
    """What reads a document: gives its value, and the first error if it is malformed."""
    read, corrupt = _root(spark, zone)

    def document(data: bytes) -> tuple[Any, BadJsonError | None]:
        tokens = JsonTokens(data)
        try:
            if tokens.next() is None:
                return None, None
            found = read(tokens)
            if found is None:
                raise BadJsonError("the document is null")
            return found, None
        except PartialError as partial:
            found, error = partial.value, partial.cause
        except BadJsonError as bad:
            found, error = None, bad
        if corrupt:
            found = {**(found or {}), json_types.CORRUPT: data}
        return found, error

    return document


def _root(spark: DataType, zone: Zone) -> tuple[Converter, bool]:
    """The converter of the document's value, and whether a field of it gets the text of malformed ones."""
    if isinstance(spark, StructType):
        own = StructType([field for field in spark.fields if field.name != json_types.CORRUPT])
        return _struct(own, zone), len(own) < len(spark)
    if not isinstance(spark, ArrayType) or not isinstance(spark.elementType, StructType):
        return converter(spark, zone), False
    array, element = converter(spark, zone), converter(spark.elementType, zone)

    def array_of_structs(tokens: JsonTokens) -> Any:
        """One struct is an array of it."""
        if tokens.token != START_OBJECT:
            return array(tokens)
        try:
            return [element(tokens)]
        except PartialError as partial:
            raise PartialError([partial.value], partial.cause) from partial

    return array_of_structs, False


def converter(spark: DataType, zone: Zone) -> Converter:
    """What reads a value of this type at the tokens' place, or raises."""
    if isinstance(spark, StructType):
        return _struct(spark, zone)
    if isinstance(spark, ArrayType):
        return _array(spark, zone)
    if isinstance(spark, MapType):
        return _map(spark, zone)
    read = _simple(spark, zone)
    name = spark.simpleString()

    def convert(tokens: JsonTokens) -> Any:
        token = _at_value(tokens)
        if token is None or token == NULL:
            return None
        found = read(tokens, token)
        if found is None:
            raise _does_not_fit(tokens, token, name)
        return found

    return convert


def _at_value(tokens: JsonTokens) -> str | None:
    token = tokens.token
    while token == NAME:
        token = tokens.next()
    return token


def _does_not_fit(tokens: JsonTokens, token: str, name: str) -> BadJsonError:
    begins = {STRING: '"', INT: "0", FLOAT: "0", TRUE: "t", FALSE: "f"}.get(token, token)
    return BadJsonError(why_not(begins, tokens.text() if token in (STRING, INT, FLOAT) else "", name))


def why_not(begins: str, text: str, name: str) -> str:
    """The reason for a value that begins with this character, and has this text where it is a string or number."""
    if begins == '"':
        return f'the string "{_shortened(text)}" is no {name}' if text else f"an empty string is no {name}"
    words = {START_OBJECT: "an object", START_ARRAY: "an array", "t": "true", "f": "false"}
    what = words.get(begins) or (f"the number {_shortened(text)}" if text else begins)
    return f"{what} is no {name}"


def _shortened(text: str) -> str:
    return as_spark(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _simple(spark: DataType, zone: Zone) -> Callable[[JsonTokens, str], Any]:
    """A reader that gives None for what does not fit."""
    if type(spark) in INTEGER_BITS:
        return _integer(INTEGER_BITS[type(spark)])
    if isinstance(spark, DecimalType):
        precision, scale = spark.precision, spark.scale
        return lambda tokens, token: _decimal(tokens, token, precision, scale)
    if isinstance(spark, TimestampType):
        return lambda tokens, token: _timestamp(tokens, token, zone)
    found: dict[type[DataType], Callable[[JsonTokens, str], Any]] = {
        BooleanType: lambda tokens, token: {TRUE: True, FALSE: False}.get(token),
        FloatType: lambda tokens, token: _floating(tokens, token, float_of),
        DoubleType: lambda tokens, token: _floating(tokens, token, float),
        StringType: lambda tokens, token: _string(tokens, token),
        DateType: lambda tokens, token: date_of(tokens.text()) if token == STRING else None,
        TimestampNTZType: lambda tokens, token: local_timestamp_of(tokens.text()) if token == STRING else None,
        BinaryType: lambda tokens, token: tokens.binary() if token == STRING else None,
    }
    return found[type(spark)]


def _integer(bits: int) -> Callable[[JsonTokens, str], int | None]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(tokens: JsonTokens, token: str) -> int | None:
        if token != INT:
            return None
        value = int(tokens.text())
        if bits == 8 and high < value <= 255:
            return value - 256  # Jackson takes a byte without sign, too
        return value if low <= value <= high else None

    return read


def _floating(tokens: JsonTokens, token: str, of: Callable[[str], float]) -> float | None:
    if token not in (INT, FLOAT, STRING):
        return None
    text = tokens.text()
    special = NOT_FINITE.get(text)
    if special is not None or token == STRING:
        return special
    found = of(text)
    return 0.0 if token == INT and not found else found


def _decimal(tokens: JsonTokens, token: str, precision: int, scale: int) -> Any:
    if token in (INT, FLOAT):
        return decimal_of(tokens.text(), precision, scale)
    if token == STRING:
        return decimal_of(tokens.text().replace(",", ""), precision, scale)
    return None


def _timestamp(tokens: JsonTokens, token: str, zone: Zone) -> int | None:
    if token == STRING:
        return timestamp_of(tokens.text(), zone, time.time)
    if token == INT:
        seconds = int(tokens.text())
        if -(2**63) <= seconds < 2**63:
            return (seconds * 1_000_000 + 2**63) % 2**64 - 2**63  # as a Java long overflows
    return None


# --- strings ----------------------------------------------------------------------------------------------------------


def _string(tokens: JsonTokens, token: str) -> str:
    """A string's text; of another value the JSON that Jackson writes for it, without spaces."""
    if token == STRING:
        return as_spark(tokens.text())
    written: list[str] = []
    if token not in (START_OBJECT, START_ARRAY):
        return _scalar_as_text(tokens, token)
    written.append(token)
    depth, first = 1, True
    while depth:
        token_or_end = tokens.next()
        if token_or_end is None:
            break
        token = token_or_end
        if token in ENDS:
            depth -= 1
            written.append(token)
            first = False
            continue
        if not first:
            written.append(",")
        if token == NAME:
            written.append(_quoted(tokens.name() or "") + ":")
            first = True
        elif token in (START_OBJECT, START_ARRAY):
            depth += 1
            written.append(token)
            first = True
        else:
            written.append(_scalar_as_text(tokens, token))
            first = False
    return "".join(written)


def _scalar_as_text(tokens: JsonTokens, token: str) -> str:
    if token == STRING:
        return _quoted(tokens.text())
    if token == INT:
        return str(int(tokens.text()))
    if token == FLOAT:
        text = tokens.text()
        value = NOT_FINITE.get(text)
        shown = double_as_text(float(text) if value is None else value)
        return f'"{shown}"' if shown[-1] in "Ny" else shown
    if token in ENDS:
        raise BadJsonError(f"{token} is no value")
    return token


ESCAPED = {
    **{at: f"\\u{at:04X}" for at in range(32)},
    **{ord(char): f"\\{name}" for name, char in zip("btnfr", "\b\t\n\f\r", strict=True)},
}
ESCAPED |= {ord('"'): '\\"', ord("\\"): "\\\\"}


def _quoted(text: str) -> str:
    """A string as Jackson writes it: what is no character of two bytes is escaped as two surrogates."""
    text = text.translate(ESCAPED)
    if text.isascii():
        return f'"{text}"'
    wide = (char if char < "\ud800" or "\udfff" < char <= "\uffff" else _surrogates(char) for char in text)
    return f'"{"".join(wide)}"'


def _surrogates(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))


# --- structs, maps and arrays -----------------------------------------------------------------------------------------


def _struct(spark: StructType, zone: Zone) -> Converter:
    converters = {field.name: converter(field.dataType, zone) for field in spark.fields}

    def convert(tokens: JsonTokens) -> dict[str, Any] | None:
        token = _at_value(tokens)
        if token is None or token == NULL:
            return None
        if token != START_OBJECT:
            raise _does_not_fit(tokens, token, "struct")
        row: dict[str, Any] = {}
        first: BadJsonError | None = None
        while True:
            token = tokens.next()
            if token is None or token == END_OBJECT:
                break
            name = tokens.name()
            read = converters.get(name) if name is not None else None
            if read is None or name is None:
                tokens.skip_children()
                continue
            try:
                row[name] = read(tokens)
            except PartialError as partial:
                first = first or partial.cause.below(name)
                row[name] = partial.value
            except BadJsonError as error:
                first = first or error.below(name)
                tokens.skip_children()
        if first is not None:
            raise PartialError(row, first)
        return row

    return convert


def _array(spark: ArrayType, zone: Zone) -> Converter:
    read = converter(spark.elementType, zone)

    def convert(tokens: JsonTokens) -> list[Any] | None:
        token = _at_value(tokens)
        if token is None or token == NULL:
            return None
        if token != START_ARRAY:
            raise _does_not_fit(tokens, token, "array")
        elements: list[Any] = []
        first: BadJsonError | None = None
        while True:
            token = tokens.next()
            if token is None or token == END_ARRAY:
                break
            try:
                elements.append(read(tokens))
            except PartialError as partial:
                first = first or partial.cause
                elements.append(partial.value)
        if first is not None:
            raise PartialError(elements, first)
        return elements

    return convert


def _map(spark: MapType, zone: Zone) -> Converter:
    read = converter(spark.valueType, zone)

    def convert(tokens: JsonTokens) -> list[tuple[str, Any]] | None:
        token = _at_value(tokens)
        if token is None or token == NULL:
            return None
        if token != START_OBJECT:
            raise _does_not_fit(tokens, token, "map")
        entries: list[tuple[str, Any]] = []
        first: BadJsonError | None = None
        lost: BadJsonError | None = None
        while True:
            token = tokens.next()
            if token is None or token == END_OBJECT:
                break
            key = tokens.name()
            try:
                entries.append((as_spark(key or ""), read(tokens)))
            except PartialError as partial:
                first = first or partial.cause
                entries.append((as_spark(key or ""), partial.value))
            except BadJsonError as error:
                lost = lost or error
                tokens.skip_children()
        if lost is not None:
            raise lost  # Spark has more keys than values then, and gives up the map
        if first is not None:
            raise PartialError(entries, first)
        return entries

    return convert
