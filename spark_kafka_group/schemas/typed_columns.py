"""Typed columns of a query: what each of them is decoded with, found on the driver, once, when ``load()`` is called."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StringType

from spark_kafka_group.errors import OptionError, UnknownSchemaError
from spark_kafka_group.options.typed_values import AVRO, BINARY, CONFLUENT, JSON, NONE, NULL, STRING, TypedColumn
from spark_kafka_group.schemas.arrow_types import chosen, nullable
from spark_kafka_group.text.foreign_text import excerpt

if TYPE_CHECKING:
    from spark_kafka_group.options import Options

FILE = "file:"


def spark_type(column: TypedColumn) -> DataType:
    """The column's type. Raises ValueError where the schema has none, or lacks a wanted field."""
    if column.format == STRING:
        return StringType()
    if column.format == JSON:
        from spark_kafka_group.schemas.ddl import schema_of

        found = schema_of(column.schema)
    else:
        from spark_kafka_group.schemas import avro_schema, avro_types

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


def spark_types(typed: Iterable[TypedColumn]) -> dict[str, DataType]:
    """The types of typed columns by their names."""
    return {column.name: spark_type(column) for column in typed}


def _is_typed(options: Options, name: str) -> bool:
    return options.values.of_column(name).format != BINARY


def _column(options: Options, name: str) -> TypedColumn:
    values = options.values
    kind, given, framing, _, _ = values.of_column(name)
    framing = framing or (CONFLUENT if options.registry.url else NONE)
    where, schema = f"{name}Schema", ""
    if kind == STRING:
        framing = NONE
    elif given is not None:
        schema = text_given(given, where)
    else:
        where, schema = _latest(options, name)
    zone = values.time_zone or own_zone()
    everything = kind == JSON or values.on_malformed_value == NULL
    column = TypedColumn(name, kind, framing, schema, options.reading.fields_of(name), zone, nullable=everything)
    try:
        spark_type(column)  # an error now, not in a task
    except ValueError as error:
        raise OptionError(f"{where}: {error}") from error
    return column


def own_zone() -> str:
    """The zone of this machine, as Java finds it."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if named:
        return named
    try:
        return os.readlink("/etc/localtime").partition("zoneinfo/")[2] or "UTC"
    except OSError:
        return "UTC"


def text_given(given: str, option: str) -> str:
    """A schema as an option has it, or the file that the option names. Raises OptionError."""
    if not given.startswith(FILE):
        return given
    from spark_kafka_group.values.files import read_file

    try:
        return read_file(given.removeprefix(FILE)).decode()
    except OSError as error:
        raise OptionError(f"{option} ({excerpt(given)}) cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{option} ({excerpt(given)}) cannot be read: it is no UTF-8") from error


def _latest(options: Options, name: str) -> tuple[str, str]:
    """The schema of the column's subject: of the given one, or of those of the topics, which have to be the same."""
    from spark_kafka_group.schemas.avro_schema import AvroSchemaError, parse
    from spark_kafka_group.schemas.registry import AVRO as KIND
    from spark_kafka_group.schemas.registry import of_kind, registry_for

    registry, column = registry_for(options.registry), options.values.of_column(name)
    topics = options.reading.topics or sorted({tp.topic for tp in options.reading.assigned})
    found: dict[str, str] = {}
    for each in [column.subject] if column.subject else [f"{topic}-{name}" for topic in topics]:
        try:
            schema = of_kind(
                registry.version(each, column.version) if column.version else registry.latest(each),
                KIND,
                f"{name}Format={AVRO}",
                f"give {name}Subject, or {name}Format={JSON} with {name}Schema if the values are JSON",
            )
        except UnknownSchemaError as error:
            raise OptionError(f"{str(error).rstrip('.')}: give {name}Subject, or register a schema for it") from error
        try:
            found[each] = registry.whole_text(schema)
            parse(found[each])
        except AvroSchemaError as error:
            raise OptionError(f"subject {each}: {error}") from error
    (first, text), *others = found.items()
    for other, its in others:
        if json.loads(its) != json.loads(text):
            raise OptionError(
                f"subjects {first} and {other} have different schemas, and the column {name} has one type: read these "
                f"topics in queries of their own, or give {name}Subject or {name}Schema"
            )
    return f"subject {first}", text
