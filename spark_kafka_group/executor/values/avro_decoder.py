"""Avro values to a column of Spark's type, with their writers' schemas: one program for each, made when it is met."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor import compiled_twin
from spark_kafka_group.executor.values.avro_columns import columns_of
from spark_kafka_group.executor.values.avro_program import Program, program
from spark_kafka_group.executor.values.avro_resolution import UnresolvableError
from spark_kafka_group.executor.values.contract import Malformed
from spark_kafka_group.schemas.arrow_types import arrow_type, chosen
from spark_kafka_group.schemas.avro_schema import AvroSchemaError, parse
from spark_kafka_group.schemas.avro_types import spark_type

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
NULL_VALUE, NO_FRAME = -2, -1

_warned = False


def load(name: str) -> Any:
    """The twin that option ``decoder`` names: a module with ``Rows`` and ``prepared``.

    Raises
    ------
    OptionError
        When the compiled twin is asked for by name and was not built.
    """
    global _warned
    try:
        if name != "python":
            return compiled_twin.load(__package__, "_avro_c")
    except ImportError as error:
        advice = compiled_twin.why_not_built(HERE, "_avro_c")
        if name == "c":
            raise OptionError(f"decoder=c: the compiled Avro decoder was not built ({error}): {advice}") from error
        if not _warned:
            log.warning("the compiled Avro decoder was not built (%s), so values are decoded slowly: %s", error, advice)
            _warned = True
    from spark_kafka_group.executor.values import _avro_py

    return _avro_py


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
    ) -> None:
        self._reader = parse(reader_schema_text)
        spark = chosen(spark_type(self._reader), wanted)
        self.type: pa.DataType = arrow_type(spark)
        self._columns = columns_of(spark)
        self._framed = framed
        self._writer_of = writer_of
        self._twin = load(decoder)
        self._programs: dict[int | str | None, tuple[Program, Any] | str] = {}

    def decode(
        self, values: pa.Array, ids: Sequence[int | str | None] | None = None
    ) -> tuple[pa.Array, list[Malformed]]:
        """The column of `values`, and what is malformed in it, which is null there."""
        rows, row, count, malformed = self._twin.Rows(self._columns, values), 0, len(values), []
        while row < count:
            schema_id, reason, end = self._run(rows, row, ids, count)
            found = reason or self._program(schema_id)
            number = schema_id if isinstance(schema_id, int) else None
            if isinstance(found, str):
                if values[row].is_valid:
                    malformed.append(Malformed(row, number, "", found))
                rows.null()
                row += 1
                continue
            plan, ready = found
            row = rows.run(ready, row, end, self._framed)
            malformed += [Malformed(r, number, *plan.why(problem, at)) for r, at, problem in rows.problems]
            rows.problems.clear()
        return rows.finish(), malformed

    def _run(
        self, rows: Any, row: int, ids: Sequence[int | str | None] | None, count: int
    ) -> tuple[int | str | None, str, int]:
        """The schema id of a row, why it has none, and where its run of rows ends at most."""
        if self._framed:
            schema_id = rows.frame_id(row)
            if schema_id == NULL_VALUE:
                return None, "", row + 1
            if schema_id == NO_FRAME:
                return None, "the value does not begin with a zero byte and a schema id", row + 1
            return schema_id, "", count
        if ids is None:
            return None, "", count
        end = row + 1
        while end < count and ids[end] == ids[row]:
            end += 1
        return ids[row], "the record has no header with a schema id" if ids[row] is None else "", end

    def _program(self, schema_id: int | str | None) -> tuple[Program, Any] | str:
        """The program for a writer's schema, or why there is none."""
        if schema_id not in self._programs:
            try:
                writer = self._reader if schema_id is None else parse(self._writer_of(schema_id))
                made = program(writer, self._reader, self._columns)
                self._programs[schema_id] = made, self._twin.prepared(made)
            except (LookupError, AvroSchemaError, UnresolvableError, ValueError) as error:
                self._programs[schema_id] = str(error.args[0]) if error.args else type(error).__name__
        return self._programs[schema_id]
