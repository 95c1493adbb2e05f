"""Keys and values of a task's RecordBatches decoded to typed columns, and what becomes of records that do not fit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_kafka_group.errors import MalformedValueError, UnknownSchemaError
from spark_kafka_group.executor.values.framing import KEY_HEADER, NO_HEADER, VALUE_HEADER, header_ids
from spark_kafka_group.executor.values.value_contract import NO_LIMIT, Malformed, ValueDecoder
from spark_kafka_group.options import Options
from spark_kafka_group.options.parsing import RAW
from spark_kafka_group.options.reading import DEAD_LETTER, FAIL
from spark_kafka_group.options.typed_values import (
    AVRO,
    CONFLUENT,
    CONFLUENT_HEADER,
    JSON,
    NULL,
    PROTOBUF,
    TypedColumn,
)
from spark_kafka_group.values.schema import COLUMNS, EVERY

if TYPE_CHECKING:
    from spark_kafka_group.executor.schemas.protobuf_schema import ProtobufSchema
    from spark_kafka_group.executor.schemas.registry import RegisteredSchema, RegistryPatience
    from spark_kafka_group.executor.values.framing import MessageKey

log = logging.getLogger(__name__)

HEADERS = {"key": KEY_HEADER, "value": VALUE_HEADER}
ADVICE = "Set onMalformedValue=null to read such values as null, or deadLetter to keep the records in a topic"
MOST_BYTES = 16 * 1024 * 1024
"""Memory of a decoded column, about: a few bytes may be many columns, as those that a document lacks."""
MOST_LETTERS = 1000
"""Dead letters in memory: as Python's objects, the letter of a small record has some kilobytes."""
MOST_EXTRA = 10
"""Fields that a warning names."""


def bytes_columns(options: Options) -> tuple[str, ...]:
    """The columns that have to be read for those of the query, as bytes and numbers."""
    needed = [RAW.get(name, name) for name in options.reading.columns]
    if options.values.on_malformed_value == DEAD_LETTER:
        needed += EVERY
    if any(column.format in (AVRO, JSON, PROTOBUF) for column in options.typed):
        needed += ["topic", "partition", "offset"]
    if any(column.framing == CONFLUENT_HEADER for column in options.typed):
        needed.append("headers")
    return tuple(dict.fromkeys(needed))


class TypedBatches:
    """Decodes the RecordBatches of one task.

    `outlives`: whether a registry that is away is waited for as brokers are, up to maxBrokerOutage if that is set.
    """

    def __init__(self, options: Options, outlives: bool = False) -> None:
        self._options = options
        self._outlives = outlives
        self._policy = options.values.on_malformed_value
        self._decoders = [(column, self._decoder(column)) for column in options.typed]
        types = {column.name: decoder.type for column, decoder in self._decoders}
        self._schema = pa.schema(
            [pa.field(name, types.get(name) or COLUMNS[name][1]) for name in options.reading.columns]
        )
        self._nulls = 0

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with typed columns. Raises MalformedValueError, BrokerError, RegistryError."""
        for batch in batches:
            while batch.num_rows:
                rows, made = self._first_rows(batch)
                if made.num_rows:
                    yield made
                batch = batch.slice(rows)
        if self._nulls:
            log.warning("%d keys or values did not fit their schema and are null", self._nulls)

    def _first_rows(self, batch: pa.RecordBatch) -> tuple[int, pa.RecordBatch]:
        """How many rows are decoded, all of them unless they take too much memory; and these rows, without those that
        are dead letters."""
        columns: dict[str, pa.Array] = {}
        malformed: dict[int, tuple[str, Malformed]] = {}
        for column, decoder in self._decoders:
            columns[column.name], problems = self._column(column, decoder, batch, MOST_BYTES)
            for one in problems:
                malformed.setdefault(one.row, (column.name, one))
            batch = batch.slice(0, len(columns[column.name]))
        rows = batch.num_rows
        malformed = {row: found for row, found in malformed.items() if row < rows}
        kept = self._kept(batch, malformed) if malformed else None
        arrays = [
            columns[name].slice(0, rows) if name in columns else batch.column(RAW.get(name, name))
            for name in self._schema.names
        ]
        made = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return rows, made if kept is None else made.filter(kept)

    def as_objects(self, batch: pa.RecordBatch) -> dict[str, list[Any]]:
        """The typed columns as Python objects; what does not fit is None."""
        found = {}
        for column, decoder in self._decoders:
            made, problems = self._column(column, decoder, batch)
            unfit = {one.row for one in problems}
            found[column.name] = [None if row in unfit else each for row, each in enumerate(made.to_pylist())]
        return found

    def _column(
        self, column: TypedColumn, decoder: ValueDecoder, batch: pa.RecordBatch, most_bytes: int = NO_LIMIT
    ) -> tuple[pa.Array, list[Malformed]]:
        ids, missing = self._ids(column, batch)
        made, problems = decoder.decode(batch.column(column.name), ids, most_bytes)
        return made, [
            Malformed(one.row, None, "", missing[one.row]) if one.reason == NO_HEADER else one for one in problems
        ]

    def _kept(self, batch: pa.RecordBatch, malformed: dict[int, tuple[str, Malformed]]) -> pa.Array | None:
        """Which rows stay; None if all do."""
        first = min(malformed)
        if self._policy == FAIL:
            raise self._error(batch, first, *malformed[first], advice=f". {ADVICE}")
        if self._policy == NULL:
            if not self._nulls:
                log.warning(
                    "%s. It is null, as others of this task that do not fit",
                    self._error(batch, first, *malformed[first]),
                )
            self._nulls += len(malformed)
            return None
        from spark_kafka_group.executor.writing.dead_letters import letters, send  # seldom needed
        from spark_kafka_group.options.sink_options import sink_options

        sink, rows = sink_options(self._options, self._outlives), sorted(malformed)
        for begin in range(0, len(rows), MOST_LETTERS):
            errors = {row: self._error(batch, row, *malformed[row]) for row in rows[begin : begin + MOST_LETTERS]}
            told = str(errors[rows[begin]])
            send(letters(batch, errors, self._options), sink, told, by="onMalformedValue")
        return pa.array([row not in malformed for row in range(batch.num_rows)])

    def _error(
        self, batch: pa.RecordBatch, row: int, column: str, one: Malformed, advice: str = ""
    ) -> MalformedValueError:
        topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
        schema = "" if one.schema_id is None else f" of schema {one.schema_id}"
        field = f", field {one.field}" if one.field else ""
        return MalformedValueError(
            topic, partition, offset, f"the {column}{schema} is malformed{field}: {one.reason}{advice}"
        )

    def _ids(self, column: TypedColumn, batch: pa.RecordBatch) -> tuple[list[Any] | None, dict[int, str]]:
        if column.framing != CONFLUENT_HEADER:
            return None, {}
        return header_ids(batch.column("headers"), HEADERS[column.name], column.format == PROTOBUF)

    def _decoder(self, column: TypedColumn) -> ValueDecoder:
        framed = column.framing == CONFLUENT
        decoder = self._options.reading.decoder
        if column.format == AVRO:
            from spark_kafka_group.executor.values.avro_decoder import AvroDecoder

            writer_of = partial(self._writer, column)
            on_unlike = partial(_say_unlike, column)
            return AvroDecoder(column.schema, column.wanted, framed, writer_of, decoder, column.nullable, on_unlike)
        if column.format == PROTOBUF:
            from spark_kafka_group.executor.schemas import protobuf_schema
            from spark_kafka_group.executor.schemas.typed_columns import protobuf_options
            from spark_kafka_group.executor.values.protobuf_decoder import ProtobufDecoder

            schema, given = protobuf_schema.of_text(column.schema), protobuf_options(self._options.values)
            check = partial(self._check_message, column, schema)
            return ProtobufDecoder(
                schema, column.message, column.wanted, framed, given, check, decoder, column.nullable
            )
        if column.format == JSON:
            from spark_kafka_group.executor.schemas.ddl import schema_of
            from spark_kafka_group.executor.values.json_decoder import json_decoder

            return json_decoder(schema_of(column.schema), column.wanted, framed, column.time_zone, decoder)
        from spark_kafka_group.executor.values.json_decoder import StringDecoder

        return StringDecoder()

    def _writer(self, column: TypedColumn, key: int | str) -> str:
        """The schema that a value was written with; LookupError where the registry does not have it."""
        from spark_kafka_group.executor.schemas.registry import AVRO as KIND
        from spark_kafka_group.executor.schemas.registry import registry_for

        found = self._registered(key, KIND)
        try:
            text = registry_for(self._options.registry).whole_text(found, self._patience())
        except UnknownSchemaError as error:
            raise LookupError(str(error)) from error
        _warn_of_more(column, key, text)
        return text

    def _registered(self, key: int | str, kind: str) -> RegisteredSchema:
        from spark_kafka_group.executor.schemas.registry import registry_for

        found = registry_for(self._options.registry).schemas([key], self._patience()).get(key)
        if found is None:
            raise LookupError("the schema registry does not have its schema")
        if found.kind != kind:
            raise LookupError(f"its schema is of type {found.kind}, not {kind}")
        return found

    def _check_message(self, column: TypedColumn, schema: ProtobufSchema, key: MessageKey) -> None:
        """Raise LookupError where a value is of another message than the column."""
        from spark_kafka_group.executor.schemas import proto_texts, protobuf_files
        from spark_kafka_group.executor.schemas.registry import PROTOBUF as KIND

        if not self._options.registry.url or key.schema in column.own:
            if key.path in schema.messages[column.message].paths:
                return
            raise LookupError(f"its message indexes {list(key.path)} are not those of {column.message}")
        file = proto_texts.parsed(f"of schema {key.schema}", self._registered(key.schema, KIND).text)
        names = protobuf_files.names_at(file, key.path)
        if column.message not in names:
            found = " or ".join(sorted(names)) or f"none, by its indexes {list(key.path)}"
            raise LookupError(f"its message is {found}, and the column has {column.message}")
        if column.wanted is None:
            _say_more(column, key.schema, tuple(protobuf_files.fields_beyond(file, schema)))

    def _patience(self) -> RegistryPatience:
        from spark_kafka_group.executor.schemas.registry import RegistryPatience

        if self._outlives:
            return RegistryPatience(limit_ms=self._options.connection.max_broker_outage_ms, behind_others=True)
        return RegistryPatience(limit_ms=self._options.fetching.poll_timeout_ms)


@lru_cache(maxsize=1024)
def _warn_of_more(column: TypedColumn, key: int | str, text: str) -> None:
    """Say which fields of a writer's schema the column does not have: once in a process, which runs many tasks."""
    if column.wanted is not None:
        return
    from spark_kafka_group.executor.schemas import avro_schema

    writer, reader = avro_schema.parse(text), avro_schema.parse(column.schema)
    _say_more(column, key, tuple(avro_schema.fields_beyond(writer, reader)))


@lru_cache(maxsize=1024)
def _say_more(column: TypedColumn, key: int | str, more: tuple[str, ...]) -> None:
    """Once in a process, which runs many tasks."""
    if more:
        log.warning(
            "schema %s of the %s has fields that the query's schema does not have, and they are left out: %s. A query "
            "that is started again has them",
            key, column.name, _some(more),
        )  # fmt: skip


@lru_cache(maxsize=1024)
def _say_unlike(column: TypedColumn, key: int | str, unlike: tuple[str, ...]) -> None:
    """Once in a process, which runs many tasks."""
    log.warning(
        "schema %s of the %s has numbers of another unit or scale than the query's schema, so these fields are wrong, "
        "as from_avro reads them: %s",
        key, column.name, _some(unlike),
    )  # fmt: skip


def _some(fields: tuple[str, ...]) -> str:
    return ", ".join(fields[:MOST_EXTRA]) + (", ..." if len(fields) > MOST_EXTRA else "")
