"""Avro values to a column of Spark's type, with their writers' schemas: one program for each, made when it is met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from spark_kafka_group.executor import compiled_twin
from spark_kafka_group.executor.schemas.arrow_types import arrow_type, chosen, nullable
from spark_kafka_group.executor.schemas.avro_schema import AvroSchema, AvroSchemaError, parse
from spark_kafka_group.executor.schemas.avro_types import spark_type
from spark_kafka_group.executor.values.avro_instructions import Program
from spark_kafka_group.executor.values.avro_program import program
from spark_kafka_group.executor.values.avro_resolution import UnresolvableError
from spark_kafka_group.executor.values.framing import rows_by_ids
from spark_kafka_group.executor.values.value_columns import Column, columns_of
from spark_kafka_group.executor.values.value_contract import NO_LIMIT, Malformed

TWINS = compiled_twin.Twins(
    __name__.rpartition(".")[0],
    "_avro_c",
    "_avro_py",
    "decoder",
    "decoder=c: the compiled Avro decoder was not built",
    "values are decoded",
)
NULL_VALUE, NO_FRAME = -2, -1
"""What frame_id() gives for no value, and for a value that does not begin with an id."""
MOST_REFUSED = 10_000
"""Ids that are kept; bytes that only look framed have any number of them."""
MOST_PROGRAMS, LARGEST_PROGRAM = 32, 10_000
"""Programs that a process keeps for its next tasks, and the most instructions of such a program."""
NO_ID = "the value does not begin with a zero byte and a schema id"


class AvroDecoder:
    """Decodes columns of Avro values; see ``ValueDecoder``.

    Bytes behind a value are left alone, as from_avro does. Text that is no UTF-8 has replacement characters.

    Parameters
    ----------
    reader_schema_text
        The schema whose type the column has.
    wanted
        Dotted names of the fields to read, or None for all. They come in the order of the schema.
    framed
        Whether each value begins with a zero byte and the id of its writer's schema.
    writer_of
        The text of a schema for an id; LookupError or ValueError where there is none, which makes values malformed.
        Each id is asked once. Without id the writer's schema is the reader's.
    decoder
        ``auto``, ``c`` or ``python``.
    all_nullable
        Whether the type has fields that may be null only, whatever the schema says.
    on_unlike
        Called with an id and with the fields that its values have in another unit or scale than the column.

    Raises
    ------
    AvroSchemaError
        When the reader schema cannot be a column.
    ValueError
        When it does not have a wanted field.
    """

    def __init__(
        self,
        reader_schema_text: str,
        wanted: tuple[str, ...] | None,
        framed: bool,
        writer_of: Callable[[int | str], str],
        decoder: str = "auto",
        all_nullable: bool = False,
        on_unlike: Callable[[int | str, tuple[str, ...]], None] | None = None,
    ) -> None:
        self._read_as = reader_schema_text, wanted, all_nullable
        _, self._columns, self.type = _reader(*self._read_as)
        self._framed = framed
        self._writer_of = writer_of
        self._on_unlike = on_unlike
        self._twin = TWINS.load(decoder)
        self._programs: dict[int | str | None, Program] = {}
        self._ready: dict[Any, Any] = {}
        self._refused: dict[int | str | None, str] = {}

    def decode(
        self, values: pa.Array, ids: Sequence[int | str | None] | None = None, most_bytes: int = NO_LIMIT
    ) -> tuple[pa.Array, list[Malformed]]:
        """The column of `values`, and what is malformed in it, which is null there."""
        rows = self._twin.Rows(self._columns, values, most_bytes)
        malformed = self._framed_rows(rows, len(values)) if self._framed else self._plain_rows(rows, len(values), ids)
        return rows.finish(), malformed

    def _framed_rows(self, rows: Any, count: int) -> list[Malformed]:
        row, malformed = 0, []
        while row < count and not rows.is_full():
            schema_id = rows.frame_id(row)
            refused = NO_ID if schema_id == NO_FRAME else None
            if refused is None and schema_id != NULL_VALUE:
                refused = self._why_refused(schema_id)
            if refused is not None:
                malformed.append(Malformed(row, None if schema_id == NO_FRAME else schema_id, "", refused))
                rows.null()
                row += 1
            elif not self._ready:
                rows.null()
                row += 1
            else:
                row = rows.run(self._ready, row, count, True)
                malformed += self._found(rows, None)
        return malformed

    def _plain_rows(self, rows: Any, count: int, ids: Sequence[int | str | None] | None) -> list[Malformed]:
        def run(schema_id: int | str | None, row: int, end: int) -> tuple[int, list[Malformed]]:
            row = rows.run({schema_id: self._ready[schema_id]}, row, end, False)
            return row, self._found(rows, schema_id)

        return rows_by_ids(rows, count, ids, self._why_refused, _number, run)

    def _found(self, rows: Any, schema_id: int | str | None) -> list[Malformed]:
        """What is malformed in the rows just read; `schema_id` is theirs where it is not in the values."""
        malformed = []
        for row, framed_id, place, problem in rows.problems:
            found = schema_id if framed_id is None else framed_id
            malformed.append(Malformed(row, _number(found), *self._programs[found].why(problem, place)))
        rows.problems.clear()
        return malformed

    def _why_refused(self, schema_id: int | str | None) -> str | None:
        """Why no value of a writer's schema can be read; None where there is a program for them."""
        if schema_id not in self._ready and schema_id not in self._refused:
            try:
                written_as = self._read_as[0] if schema_id is None else self._writer_of(schema_id)
                made, ready = _compiled(self._twin, written_as, *self._read_as)
                self._programs[schema_id], self._ready[schema_id] = made, ready
                if made.unlike and schema_id is not None and self._on_unlike is not None:
                    self._on_unlike(schema_id, made.unlike)
            except (LookupError, AvroSchemaError, UnresolvableError, ValueError) as error:
                if len(self._refused) >= MOST_REFUSED:
                    self._refused.clear()
                self._refused[schema_id] = str(error.args[0]) if error.args else type(error).__name__
        return self._refused.get(schema_id)


@lru_cache(maxsize=16)
def _reader(
    text: str, wanted: tuple[str, ...] | None, all_nullable: bool
) -> tuple[AvroSchema, tuple[Column, ...], pa.DataType]:
    schema = parse(text)
    spark = chosen(spark_type(schema), wanted)
    spark = nullable(spark) if all_nullable else spark
    return schema, columns_of(spark), arrow_type(spark)


_programs: dict[Any, tuple[Program, Any]] = {}


def _compiled(
    twin: Any, written_as: str, text: str, wanted: tuple[str, ...] | None, all_nullable: bool
) -> tuple[Program, Any]:
    """The program of two schemas, and as the twin takes it. A process keeps it: a micro-batch has a few tasks."""
    key = twin, written_as, text, wanted, all_nullable
    found = _programs.get(key)
    if found is None:
        reader, columns, _ = _reader(text, wanted, all_nullable)
        made = program(reader if written_as == text else parse(written_as), reader, columns)
        found = made, twin.prepared(made)
        if len(_programs) >= MOST_PROGRAMS:
            _programs.clear()
        if len(made.instructions) <= LARGEST_PROGRAM:
            _programs[key] = found
    return found


def _number(schema_id: int | str | None) -> int | None:
    return schema_id if isinstance(schema_id, int) else None
