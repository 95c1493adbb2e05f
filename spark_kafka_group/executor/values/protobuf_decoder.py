"""Protobuf values to a column of Spark's type: by one program, as the numbers of fields say what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from spark_kafka_group.executor import compiled_twin
from spark_kafka_group.executor.schemas.arrow_types import arrow_type, chosen, nullable
from spark_kafka_group.executor.schemas.protobuf_schema import ProtobufSchema
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions, spark_type
from spark_kafka_group.executor.values.framing import MessageKey, framed_message, rows_by_ids
from spark_kafka_group.executor.values.protobuf_program import program
from spark_kafka_group.executor.values.value_columns import columns_of
from spark_kafka_group.executor.values.value_contract import NO_LIMIT, Malformed

TWINS = compiled_twin.Twins(
    __name__.rpartition(".")[0],
    "_protobuf_c",
    "_protobuf_py",
    "decoder",
    "decoder=c: the compiled Protobuf decoder was not built",
    "values are decoded",
)
MOST_KEYS = 10_000
"""Keys that are kept; bytes that only look framed have any number of them."""
NO_ID = "the value does not begin with a zero byte, a schema id and message indexes"
MOST_PREFIXES = 64
"""What values begin with is kept for so many schemas and messages."""


class ProtobufDecoder:
    """Decodes columns of Protobuf values; see ``ValueDecoder``. `ids` are MessageKeys.

    Parameters
    ----------
    schema, message
        The message that the column has, by its full name.
    wanted
        Dotted names of the fields to read, or None for all. They come in the order of the schema.
    framed
        Whether each value begins with a zero byte, the id of its writer's schema, and message indexes.
    check
        Raises LookupError or ValueError where a MessageKey is of another message. Each is asked once.
    decoder
        ``auto``, ``c`` or ``python``.
    all_nullable
        Whether the type has fields that may be null only, whatever the schema says.

    Raises
    ------
    ProtobufSchemaError
        When the message cannot be a column.
    ValueError
        When it does not have a wanted field.
    """

    def __init__(
        self,
        schema: ProtobufSchema,
        message: str,
        wanted: tuple[str, ...] | None,
        framed: bool,
        options: ProtobufOptions,
        check: Callable[[MessageKey], None],
        decoder: str = "auto",
        all_nullable: bool = False,
    ) -> None:
        spark = chosen(spark_type(schema, message, options), wanted)
        spark = nullable(spark) if all_nullable else spark
        self.type: pa.DataType = arrow_type(spark)
        self._columns = columns_of(spark)
        self._framed = framed
        self._check = check
        self._twin = TWINS.load(decoder)
        self._program = program(schema, message, spark, self._columns, options)
        self._ready = self._twin.prepared(self._program)
        self._prefixes: list[bytes] = []
        self._refused: dict[MessageKey, str | None] = {}

    def decode(
        self, values: pa.Array, ids: Sequence[Any] | None = None, most_bytes: int = NO_LIMIT
    ) -> tuple[pa.Array, list[Malformed]]:
        """The column of `values`, and what is malformed in it, which is null there."""
        rows = self._twin.Rows(self._columns, values, most_bytes)
        malformed = self._framed_rows(rows, values) if self._framed else self._plain_rows(rows, len(values), ids)
        return rows.finish(), malformed

    def _framed_rows(self, rows: Any, values: pa.Array) -> list[Malformed]:
        row, malformed, count = 0, [], len(values)
        while row < count and not rows.is_full():
            row = rows.run(self._ready, self._prefixes, row, count)
            malformed += self._found(rows, [_id(framed_message(values[each[0]].as_py())) for each in rows.problems])
            if row == count or rows.is_full():
                break
            value = values[row].as_py()
            frame = framed_message(value)
            refused = NO_ID if frame is None else self._why_refused(frame[0])
            if frame is None or refused is not None:
                malformed.append(Malformed(row, _id(frame), "", refused or ""))
                rows.null()
                row += 1
            else:
                if len(self._prefixes) >= MOST_PREFIXES:
                    self._prefixes.clear()
                self._prefixes.append(value[: frame[1]])
        return malformed

    def _plain_rows(self, rows: Any, count: int, ids: Sequence[Any] | None) -> list[Malformed]:
        def run(key: MessageKey | None, row: int, end: int) -> tuple[int, list[Malformed]]:
            row = rows.run(self._ready, [b""], row, end)
            return row, self._found(rows, [_number(key)] * len(rows.problems))

        return rows_by_ids(rows, count, ids, self._why_refused, _number, run)

    def _found(self, rows: Any, numbers: list[int | None]) -> list[Malformed]:
        """What is malformed in the rows just read, and the numbers of their schemas."""
        found = [
            Malformed(row, number, *self._program.why(problem, message, field))
            for (row, message, field, problem), number in zip(rows.problems, numbers, strict=True)
        ]
        rows.problems.clear()
        return found

    def _why_refused(self, key: MessageKey | None) -> str | None:
        """Why no value of a message can be read; None where they can, as where nothing says the message."""
        if key is None:
            return None
        if key not in self._refused:
            if len(self._refused) >= MOST_KEYS:
                self._refused.clear()
            self._refused[key] = None
            try:
                self._check(key)
            except (LookupError, ValueError) as error:
                self._refused[key] = str(error.args[0]) if error.args else type(error).__name__
        return self._refused[key]


def _number(key: MessageKey | None) -> int | None:
    return key.schema if key is not None and isinstance(key.schema, int) else None


def _id(frame: tuple[MessageKey, int] | None) -> int | None:
    return None if frame is None else _number(frame[0])
