"""The schemas that columns of the sink are written with: those of the registry's subjects, or given, or made here.

A batch write's driver asks the registry before rows move, unless rows name their topics. A stream's tasks ask, as Spark
plans each micro-batch in a new process, which would ask for each.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

from pyspark import TaskContext
from pyspark.sql.types import CharType, DataType, NullType, StringType, VarcharType

from spark_kafka_group.errors import OptionError, UnknownSchemaError
from spark_kafka_group.executor.schemas import avro_schema, avro_types, protobuf_schema, protobuf_types
from spark_kafka_group.executor.schemas import registry as registries
from spark_kafka_group.executor.schemas.avro_from_spark import avro_schema_of
from spark_kafka_group.executor.schemas.protobuf_from_spark import proto_text_of
from spark_kafka_group.executor.schemas.protobuf_schema import ProtobufSchema, ProtobufSchemaError
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions
from spark_kafka_group.executor.schemas.registry import RegisteredSchema, RegistryPatience, of_kind, registry_for
from spark_kafka_group.executor.schemas.typed_columns import (
    framing_of,
    of_descriptors,
    of_proto,
    of_registered,
    own_zone,
    text_given,
)
from spark_kafka_group.executor.values.java_times import zone_of
from spark_kafka_group.executor.values.json_plan import json_plan
from spark_kafka_group.executor.values.value_encoder import plan_of
from spark_kafka_group.executor.writing.sink_columns import SinkColumns
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.options.typed_values import (
    AVRO,
    BINARY,
    JSON,
    NONE,
    PROTOBUF,
    STRING,
    SchemaToWrite,
    WrittenColumn,
)

KINDS = {AVRO: registries.AVRO, JSON: registries.JSON, PROTOBUF: registries.PROTOBUF}
MADE = {AVRO: avro_schema_of, PROTOBUF: proto_text_of}
"""How a schema is made of a column's type."""


def with_schemas(columns: SinkColumns, fields: Sequence[Any], options: SinkOptions, in_stream: bool) -> SinkColumns:
    """The columns with those that have a format, and their schemas as far as they are known before rows move.

    `fields`: Spark's StructFields.
    Raises OptionError when a format or a schema cannot take its column, RegistryError.
    """
    typed = []
    for name in ("key", "value"):
        place = getattr(columns, name)
        kind = options.values.of_column(name).format
        if place is not None and kind != BINARY:
            written = _column(name, kind, fields[place].dataType, options)
            if kind != STRING:
                typed.append(_with_schema(written, options, in_stream))
    return dataclasses.replace(columns, typed=tuple(typed))


def _column(name: str, kind: str, spark: Any, options: SinkOptions) -> WrittenColumn:
    zone = _zone(kind, options)
    if kind == STRING and not isinstance(spark, (StringType, CharType, VarcharType)):
        raise OptionError(
            f"column {name} has the type {spark.simpleString()}, and {name}Format=string takes STRING: cast it, as in "
            f"CAST({name} AS STRING)"
        )
    if kind == JSON:
        try:
            json_plan(spark, zone)
        except ValueError as error:
            raise OptionError(f"column {name} cannot be written with {name}Format=json: {error}") from error
    return WrittenColumn(name, kind, framing_of(options, name), spark, zone, _given(name, kind, spark, options))


def _zone(kind: str, options: SinkOptions) -> str:
    zone = options.values.time_zone or own_zone()
    if kind == JSON and zone_of(zone) is None:
        raise OptionError(f"timeZone ({zone}) is no zone that Python knows: take one such as Europe/Berlin")
    return zone


def _given(name: str, kind: str, spark: Any, options: SinkOptions) -> str:
    """The schema of an option, or of the column's type; empty where the registry has it."""
    given = options.values.of_column(name)
    if given.schema is not None:
        return text_given(given.schema, f"{name}Schema")
    try:
        if given.descriptor_file is not None:
            return protobuf_schema.as_text(of_descriptors(given.descriptor_file, f"{name}DescriptorFile"))
        return MADE[kind](spark) if kind in MADE and options.writing.auto_register else ""
    except OptionError:
        raise
    except ValueError as error:
        made_by = f"{name}DescriptorFile" if given.descriptor_file is not None else f"{name}Format={kind}"
        raise OptionError(f"column {name} cannot be written with {made_by}: {error}") from error


def _with_schema(column: WrittenColumn, options: SinkOptions, in_stream: bool) -> WrittenColumn:
    """The column with its schema, unless tasks ask for it."""
    if _needs_subject(column, options):
        if column.given:
            _check(column, _bare(column, options))  # before it is registered
        if in_stream or is_of_topics(column, options):
            return column
    return dataclasses.replace(column, schema=schema_for(column, options.writing.topic or "", options))


def is_of_topics(column: WrittenColumn, options: SinkOptions) -> bool:
    """Whether the topics that rows name have schemas of their own for a column."""
    return options.writing.topic is None and options.values.of_column(column.name).subject is None


def _needs_subject(column: WrittenColumn, options: SinkOptions) -> bool:
    if column.format == JSON or options.values.of_column(column.name).descriptor_file is not None:
        return column.framing != NONE
    return column.framing != NONE or options.writing.auto_register or not column.given


def schema_for(
    column: WrittenColumn, topic: str, options: SinkOptions, patience: RegistryPatience | None = None
) -> SchemaToWrite:
    """The schema of a column for the rows of a topic, which it can take. A driver has no `patience`.

    Raises OptionError, RegistryError.
    """
    asks = _needs_subject(column, options)
    found = _registered(column, topic, options, patience) if asks else _bare(column, options)
    _check(column, found)
    return found


def _bare(column: WrittenColumn, options: SinkOptions) -> SchemaToWrite:
    """The schema without what a registry says of it."""
    named = options.values.of_column(column.name).given(column.name, "Schema", "DescriptorFile")
    source = named[0] if named else "the schema of its type"
    if column.format != PROTOBUF:
        return SchemaToWrite(column.given, source)
    try:
        is_text = named != [f"{column.name}DescriptorFile"]
        schema = of_proto(column.given, source) if is_text else protobuf_schema.of_text(column.given)
    except ValueError as error:
        raise _unfit(column, source, error) from error
    return _of_message(column, schema, options, SchemaToWrite("", source))


def _of_message(
    column: WrittenColumn, schema: ProtobufSchema, options: SinkOptions, found: SchemaToWrite
) -> SchemaToWrite:
    """The schema with the message that the options name, else with the first."""
    try:
        message = schema.message(options.values.of_column(column.name).message)
    except ValueError as error:
        raise _unfit(column, found.source, error) from error
    if message.name not in schema.first:
        raise OptionError(
            f"{column.name}Message ({message.name}) is in a file that {found.source} needs: give a message of its own"
        )
    text = protobuf_schema.as_text(schema.only(message.name))
    return dataclasses.replace(found, text=text, path=message.paths[0])


def _registered(
    column: WrittenColumn, topic: str, options: SinkOptions, patience: RegistryPatience | None
) -> SchemaToWrite:
    registry, kind = registry_for(options.registry), KINDS[column.format]
    given = options.values.of_column(column.name)
    subject, version = given.subject or f"{topic}-{column.name}", given.version
    try:
        if not column.given:
            found = registry.version(subject, version, patience) if version else registry.latest(subject, patience)
            asked_by, instead = f"{column.name}Format={column.format}", f"give {column.name}Subject, or another format"
            of_kind(found, kind, asked_by, instead)
        else:
            written = RegisteredSchema(column.given, kind)
            registered = registry.registered if options.writing.auto_register else registry.lookup
            found = registered(subject, written, patience)
    except UnknownSchemaError as error:
        advice = f"register it, set schema.registry.auto.register=true, or give {column.name}Subject"
        raise OptionError(f"{str(error).rstrip('.')}, and column {column.name} needs its schema: {advice}") from error
    if column.framing != NONE and found.id is None:
        raise OptionError(f"the schema registry does not say the id of the schema of subject {subject}")
    whole = registry.whole_text(found, patience) if column.format == AVRO else ""
    schema = SchemaToWrite(whole, f"the schema of subject {subject}", found.id, found.guid)
    if column.format != PROTOBUF:
        return schema
    try:
        return _of_message(column, of_registered(registry, found, patience), options, schema)
    except ProtobufSchemaError as error:
        raise _unfit(column, schema.source, error) from error


@dataclasses.dataclass(frozen=True)
class OutputFormats:
    """How keys and values are written that are objects: columns of no type yet, and the options of the write."""

    columns: tuple[WrittenColumn, ...]
    options: SinkOptions


def columns_of_objects(options: SinkOptions) -> tuple[WrittenColumn, ...]:
    """The columns of objects, with their schemas as far as options have them: files are read here.

    Raises OptionError.
    """
    made = []
    for name in ("key", "value"):
        kind, spark = options.values.of_column(name).format, cast("DataType", NullType())
        if kind not in (BINARY, STRING):
            given = _given(name, kind, spark, options)
            column = WrittenColumn(name, kind, framing_of(options, name), spark, _zone(kind, options), given)
            if given or kind == JSON:
                bare = _of_objects(column, _bare(column, options))
                column = column if _needs_subject(column, options) else bare
            made.append(column)
    return tuple(made)


def column_of_task(column: WrittenColumn, topic: str, options: SinkOptions) -> WrittenColumn:
    """A column of objects with its schema for the records of a topic, and the type that objects have with it; JSON has
    none. Raises OptionError, RegistryError."""
    if column.schema is not None:
        return column
    return _of_objects(column, _of_task(_registered, column, topic, options))


def _of_objects(column: WrittenColumn, schema: SchemaToWrite) -> WrittenColumn:
    try:
        return dataclasses.replace(column, type=type_of_objects(column.format, schema), schema=schema)
    except ValueError as error:
        raise _unfit(column, schema.source, error) from error


def type_of_objects(kind: str, schema: SchemaToWrite, depth: int = 1) -> DataType:
    """The type of objects, in which a message of Protobuf may be in itself, `depth` of it. Raises ValueError."""
    if kind == AVRO:
        return avro_types.spark_type(avro_schema.parse(schema.text))
    if kind != PROTOBUF:
        return cast("DataType", NullType())
    messages = protobuf_schema.of_text(schema.text)
    return protobuf_types.spark_type(messages, messages.first[0], ProtobufOptions(of_objects=True, max_depth=depth))


def _check(column: WrittenColumn, schema: SchemaToWrite) -> None:
    """See whether the schema can take the column."""
    try:
        plan_of(column, schema)
    except ValueError as error:
        raise _unfit(column, schema.source, error) from error


def _unfit(column: WrittenColumn, source: str, error: ValueError) -> OptionError:
    return OptionError(f"column {column.name} cannot be written with {source}: {error}")


RUN, BATCH = "spark.jobGroup.id", "streaming.sql.batchId"
"""Spark's local properties: a run of a query, and its micro-batch."""
_of_runs: dict[Hashable, tuple[float, SchemaToWrite]] = {}  # and when they were asked for
MOST_KEPT = 1000


def schema_of_task(column: WrittenColumn, topic: str, options: SinkOptions) -> SchemaToWrite:
    """The schema of a column for a task's rows of a topic. A process keeps it for a run of a stream, for as long as it
    keeps what it knows of a topic.

    Raises OptionError, RegistryError.
    """
    return column.schema or _of_task(schema_for, column, topic, options)


def _of_task(
    ask: Callable[[WrittenColumn, str, SinkOptions, RegistryPatience], SchemaToWrite],
    column: WrittenColumn,
    topic: str,
    options: SinkOptions,
) -> SchemaToWrite:
    context = TaskContext.get()
    run = context.getLocalProperty(RUN) if context and context.getLocalProperty(BATCH) is not None else None
    key = run, column, topic, options.values, options.registry
    asked_at, kept = _of_runs.get(key, (0.0, None))
    if kept is not None and time.monotonic() - asked_at < options.connection.metadata_max_age_ms / 1000:
        return kept
    patience = RegistryPatience(limit_ms=options.producing.max_block_ms, behind_others=run is not None)
    found = ask(column, topic, options, patience)
    if run is not None:
        if len(_of_runs) >= MOST_KEPT:
            _of_runs.clear()
        _of_runs[key] = time.monotonic(), found
    return found
