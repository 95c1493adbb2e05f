"""Typed columns of a query: what each of them is decoded with, found on the driver, once, when ``load()`` is called."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StringType

from spark_kafka_group.errors import OptionError, UnknownSchemaError
from spark_kafka_group.executor.schemas.arrow_types import chosen, nullable
from spark_kafka_group.options.typed_values import (
    BINARY,
    CONFLUENT,
    JSON,
    NONE,
    NULL,
    PROTOBUF,
    STRING,
    ColumnOptions,
    TypedColumn,
    TypedValues,
)
from spark_kafka_group.text.foreign_text import excerpt

if TYPE_CHECKING:
    from spark_kafka_group.executor.schemas.protobuf_schema import ProtobufSchema
    from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions
    from spark_kafka_group.executor.schemas.registry import RegisteredSchema, Registry, RegistryPatience
    from spark_kafka_group.options import Options
    from spark_kafka_group.options.sink_options import SinkOptions

FILE = "file:"


def spark_type(column: TypedColumn, values: TypedValues) -> DataType:
    """The column's type. Raises ValueError where the schema has none that can be read, or lacks a wanted field."""
    if column.format == STRING:
        return StringType()
    if column.format == JSON:
        from spark_kafka_group.executor.schemas.ddl import schema_of
        from spark_kafka_group.executor.values import json_types

        found = schema_of(column.schema)
        json_types.check(found)
    elif column.format == PROTOBUF:
        from spark_kafka_group.executor.schemas import protobuf_schema, protobuf_types

        schema = protobuf_schema.of_text(column.schema)
        found = protobuf_types.spark_type(schema, column.message, protobuf_options(values))
    else:
        from spark_kafka_group.executor.schemas import avro_schema, avro_types

        found = avro_types.spark_type(avro_schema.parse(column.schema))
    return chosen(nullable(found) if column.nullable else found, column.wanted)


def resolved(options: Options) -> tuple[TypedColumn, ...]:
    """The typed columns of a query; asks the schema registry where it has the schema.

    Raises
    ------
    OptionError
        When a schema cannot be read, or is no column's.
    RegistryError
    """
    columns = options.reading.columns
    return tuple(_column(options, name) for name in ("key", "value") if name in columns and _is_typed(options, name))


def spark_types(options: Options) -> dict[str, DataType]:
    """The types of typed columns by their names."""
    return {column.name: spark_type(column, options.values) for column in options.typed}


def protobuf_options(values: TypedValues) -> ProtobufOptions:
    """from_protobuf's options. Raises OptionError for one that is not taken."""
    if values.convert_any_fields_to_json:
        raise OptionError(
            "convert.any.fields.to.json must be false: an Any is a struct here, and its field value has the bytes"
        )
    from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions

    return ProtobufOptions(
        values.enums_as_ints,
        values.emit_default_values,
        values.upcast_unsigned_ints,
        values.unwrap_primitive_wrapper_types,
        values.retain_empty_message_types,
        values.recursive_fields_max_depth or 0,
    )


def _is_typed(options: Options, name: str) -> bool:
    return options.values.of_column(name).format != BINARY


def _column(options: Options, name: str) -> TypedColumn:
    values, given = options.values, options.values.of_column(name)
    framing = framing_of(options, name)
    zone = values.time_zone or own_zone()
    everything = given.format == JSON or values.on_malformed_value == NULL
    column = TypedColumn(name, given.format, framing, "", options.reading.fields_of(name), zone, nullable=everything)
    where = f"{name}DescriptorFile" if given.descriptor_file is not None else f"{name}Schema"
    try:
        if given.format == STRING:
            column = replace(column, framing=NONE)
        elif given.schema is not None or given.descriptor_file is not None:
            column = _given(column, given, where)
        else:
            where, column = _latest(options, column)
        spark_type(column, values)  # an error now, not in a task
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError(f"{where}: {error}") from error
    return column


def _given(column: TypedColumn, given: ColumnOptions, where: str) -> TypedColumn:
    """A column whose schema is in an option, or in a file on the driver."""
    text = given.schema or ""
    if given.format != PROTOBUF:
        return replace(column, schema=text_given(text, where))
    if given.descriptor_file is not None:
        schema = of_descriptors(given.descriptor_file, where)
    else:
        schema = of_proto(text_given(text, where), text if text.startswith(FILE) else where)
    return _of_message(column, schema, given.message)


def of_descriptors(path: str, option: str) -> ProtobufSchema:
    """The schema of a file of descriptors, which an option names. Raises OptionError, ProtobufSchemaError."""
    from spark_kafka_group.executor.schemas import descriptor_sets, proto_texts, protobuf_files

    files = descriptor_sets.files(_read(path.removeprefix(FILE), option))
    return protobuf_files.linked(files, others=proto_texts.well_known())


def of_proto(text: str, source: str) -> ProtobufSchema:
    """The schema of a .proto text, which needs no file but those that are everywhere. Raises ProtobufSchemaError."""
    from spark_kafka_group.executor.schemas import proto_texts, protobuf_files

    return protobuf_files.linked([proto_texts.parsed(source, text)], others=proto_texts.well_known())


def of_registered(
    registry: Registry, schema: RegisteredSchema, patience: RegistryPatience | None = None
) -> ProtobufSchema:
    """A registry's schema of Protobuf, with those that it needs. Raises RegistryError, ProtobufSchemaError."""
    from spark_kafka_group.executor.schemas import proto_texts, protobuf_files

    own = f"of subject {schema.subject}"
    files = [proto_texts.parsed(own, schema.text)]
    files += [
        proto_texts.parsed(f"of subject {each.subject}", each.text) for each in registry.referenced(schema, patience)
    ]
    return protobuf_files.linked(files, own, proto_texts.well_known())


def _of_message(column: TypedColumn, schema: ProtobufSchema, message: str | None) -> TypedColumn:
    from spark_kafka_group.executor.schemas import protobuf_schema

    found = schema.message(message)
    return replace(column, schema=protobuf_schema.as_text(schema.only(found.name)), message=found.name)


def framing_of(options: Options | SinkOptions, name: str) -> str:
    """The framing of ``key`` or ``value``: by default Confluent's where there is a registry."""
    return options.values.of_column(name).framing or (CONFLUENT if options.registry.url else NONE)


def own_zone(local_time: Path = Path("/etc/localtime"), zones: Path = Path("/usr/share/zoneinfo")) -> str:
    """The zone of this machine, as Java finds it. In a container its file is often a copy of one of `zones`."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if named:
        return named
    try:
        if local_time.is_symlink():
            return os.readlink(local_time).partition("zoneinfo/")[2] or "UTC"
        found = local_time.read_bytes()
    except OSError:
        return "UTC"
    files = (zones / name for name in ("UTC", "GMT", *map(str, sorted(zones.rglob("*")))))
    same = (file for file in files if file.is_file() and file.stat().st_size == len(found))
    return next((str(file.relative_to(zones)) for file in same if file.read_bytes() == found), "UTC")


def text_given(given: str, option: str) -> str:
    """A schema as an option has it, or the file that the option names. Raises OptionError."""
    if not given.startswith(FILE):
        return given
    try:
        return _read(given.removeprefix(FILE), option).decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{option} ({excerpt(given)}) cannot be read: it is no UTF-8") from error


def _read(path: str, option: str) -> bytes:
    from spark_kafka_group.values.files import read_file

    try:
        return read_file(path)
    except OSError as error:
        raise OptionError(f"{option} ({excerpt(path)}) cannot be read: {error.strerror}") from error


def _latest(options: Options, column: TypedColumn) -> tuple[str, TypedColumn]:
    """The column by the schema of its subject: the given one, or those of the topics, which have to be the same."""
    from spark_kafka_group.executor.schemas import avro_schema
    from spark_kafka_group.executor.schemas import registry as registries
    from spark_kafka_group.executor.schemas.protobuf_schema import ProtobufSchemaError

    registry, given = registries.registry_for(options.registry), options.values.of_column(column.name)
    name, kind = column.name, registries.PROTOBUF if given.format == PROTOBUF else registries.AVRO
    topics = options.reading.topics or sorted({tp.topic for tp in options.reading.assigned})
    found: dict[str, TypedColumn] = {}
    for each in [given.subject] if given.subject else [f"{topic}-{name}" for topic in topics]:
        try:
            schema = registries.of_kind(
                registry.version(each, given.version) if given.version else registry.latest(each),
                kind,
                f"{name}Format={given.format}",
                f"give {name}Subject, or {name}Format={JSON} with {name}Schema if the values are JSON",
            )
        except UnknownSchemaError as error:
            raise OptionError(f"{str(error).rstrip('.')}: give {name}Subject, or register a schema for it") from error
        try:
            if given.format == PROTOBUF:
                found[each] = _registered(column, registry, schema, given.message)
            else:
                found[each] = replace(column, schema=registry.whole_text(schema))
                avro_schema.parse(found[each].schema)
        except (avro_schema.AvroSchemaError, ProtobufSchemaError) as error:
            raise OptionError(f"subject {each}: {error}") from error
    (first, one), *others = found.items()
    for other, its in others:
        if json.loads(its.schema) != json.loads(one.schema) or its.message != one.message:
            raise OptionError(
                f"subjects {first} and {other} have different schemas, and the column {name} has one type: read these "
                f"topics in queries of their own, or give {name}Subject or {name}Schema"
            )
    return f"subject {first}", replace(one, own=tuple(key for each in found.values() for key in each.own))


def _registered(column: TypedColumn, registry: Registry, schema: RegisteredSchema, message: str | None) -> TypedColumn:
    """A column by a schema of Protobuf, and those that it needs."""
    keys = tuple(key for key in (schema.id, schema.guid) if key is not None)
    return replace(_of_message(column, of_registered(registry, schema), message), own=keys)
