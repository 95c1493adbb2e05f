"""Options of typed columns: formats of keys and values, their schemas, and what becomes of values that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_group.options.option import Section, boolean, choice, integer, option, text
from spark_kafka_group.options.reading import DEAD_LETTER, FAIL

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

BINARY, STRING, JSON, AVRO, PROTOBUF = "binary", "string", "json", "avro", "protobuf"
CONFLUENT, CONFLUENT_HEADER, NONE = "confluent", "confluent-header", "none"
NULL = "null"
WITH_FIELDS = "json, avro or protobuf"
FORMATS = choice(BINARY, STRING, JSON, AVRO, PROTOBUF)
FRAMINGS = choice(CONFLUENT, CONFLUENT_HEADER, NONE)
SHOWN_FRAMING = "`confluent` with a registry, else `none`"


OF_PROTOBUF = (
    "enums.as.ints", "emit.default.values", "upcast.unsigned.ints", "unwrap.primitive.wrapper.types",
    "retain.empty.message.types", "recursive.fields.max.depth", "convert.any.fields.to.json",
)  # fmt: skip
"""from_protobuf's options."""


SUFFIXES = ("Schema", "Framing", "Subject", "SchemaVersion", "DescriptorFile", "Message")
"""Of the names of a column's options, in the order of ColumnOptions."""


class ColumnOptions(NamedTuple):
    """The options of one column."""

    format: str
    schema: str | None
    framing: str | None
    subject: str | None
    version: int | None
    descriptor_file: str | None
    message: str | None

    def given(self, column: str, *suffixes: str) -> list[str]:
        """The names of options that are given, but the format's; by default all, else those that end so."""
        named = dict(zip(SUFFIXES, self[1:], strict=True))
        return [f"{column}{suffix}" for suffix in suffixes or SUFFIXES if named[suffix] is not None]


@dataclass(frozen=True, repr=False)
class TypedValues(Section):
    """Formats, schemas and framings of keys and values."""

    value_format: str = option(
        "valueFormat", FORMATS,
        "What `value` holds: `binary`, `string`, `json`, `avro` or `protobuf`. The column has the type of the schema. "
        "See [Values as columns](values.md).",
        default=BINARY,
    )  # fmt: skip
    key_format: str = option("keyFormat", FORMATS, "As `valueFormat`, for `key`.", default=BINARY)
    value_schema: str | None = option(
        "valueSchema", text,
        "The schema of the column: for `json` Spark's DDL, `id BIGINT, name STRING`, or a StructType's JSON; for "
        "`avro` an Avro schema; for `protobuf` the text of a .proto file. `file:PATH` is a file on the driver. "
        "Of a write: see [Writing](values.md#writing).",
        shown="`avro`, `protobuf`: the latest schema of the subject",
    )  # fmt: skip
    key_schema: str | None = option("keySchema", text, "As `valueSchema`, for `key`.", shown="as of `valueSchema`")
    value_descriptor_file: str | None = option(
        "valueDescriptorFile", text,
        "For `protobuf`, instead of `valueSchema`: a file on the driver that `protoc --include_imports "
        "--descriptor_set_out` has written, as from_protobuf takes it.",
        shown="none",
    )  # fmt: skip
    key_descriptor_file: str | None = option(
        "keyDescriptorFile", text, "As `valueDescriptorFile`, for `key`.", shown="none"
    )
    value_message: str | None = option(
        "valueMessage", text, "For `protobuf`: the message, by its full or simple name.",
        shown="the first of the schema; with a descriptor file there is none",
    )  # fmt: skip
    key_message: str | None = option("keyMessage", text, "As `valueMessage`, for `key`.", shown="as of `valueMessage`")
    value_framing: str | None = option(
        "valueFraming", FRAMINGS,
        "Where the id of a value's schema is: before the value (`confluent`: a zero byte and four bytes), in a header "
        "of the record (`confluent-header`), or nowhere (`none`).",
        shown=SHOWN_FRAMING,
    )  # fmt: skip
    key_framing: str | None = option("keyFraming", FRAMINGS, "As `valueFraming`, for `key`.", shown=SHOWN_FRAMING)
    value_subject: str | None = option(
        "valueSubject", text, "The registry's subject of the schema.", shown="`<topic>-value`"
    )
    key_subject: str | None = option(
        "keySubject", text, "The registry's subject of the key's schema.", shown="`<topic>-key`"
    )
    value_schema_version: int | None = option(
        "valueSchemaVersion", integer(1), "The version of the subject that the column has.", shown="the latest"
    )
    key_schema_version: int | None = option(
        "keySchemaVersion", integer(1), "As `valueSchemaVersion`, for `key`.", shown="the latest"
    )
    on_malformed_value: str = option(
        "onMalformedValue", choice(FAIL, NULL, DEAD_LETTER),
        "What to do with a record whose key or value does not fit its schema: `fail`, `null` (the column is null), or "
        "`deadLetter` (the record goes to `<topic>-dlt`, which must exist, and is in no row).",
        default=FAIL,
    )  # fmt: skip
    time_zone: str | None = option(
        "timeZone", text,
        "The zone of times in JSON that name none, and of times that are written, as the option of from_json and "
        "to_json: `Europe/Berlin` or `+01:00`.",
        shown="the driver's own, as Spark's is by default",
    )  # fmt: skip

    enums_as_ints: bool = option(
        "enums.as.ints", boolean, "from_protobuf's: whether an enum is its number, and not its name.", default=False
    )
    emit_default_values: bool = option(
        "emit.default.values", boolean,
        "from_protobuf's: whether an absent field of proto3 without `optional` has its default value. Else it is null.",
        default=False,
    )  # fmt: skip
    upcast_unsigned_ints: bool = option(
        "upcast.unsigned.ints", boolean,
        "from_protobuf's: whether `uint32` is a `BIGINT`, and `uint64` a `DECIMAL(20,0)`. Else they are `INT` and "
        "`BIGINT`, in which large numbers are negative.",
        default=False,
    )  # fmt: skip
    unwrap_primitive_wrapper_types: bool = option(
        "unwrap.primitive.wrapper.types", boolean,
        "from_protobuf's: whether `google.protobuf.Int32Value` and the like are what is in them, and no structs.",
        default=False,
    )  # fmt: skip
    retain_empty_message_types: bool = option(
        "retain.empty.message.types", boolean,
        "from_protobuf's: whether a field of a message without fields is kept, with a field that is null.",
        default=False,
    )  # fmt: skip
    recursive_fields_max_depth: int | None = option(
        "recursive.fields.max.depth", integer(1, 10),
        "from_protobuf's: how often a message may be in itself, from 1 (not at all: the field is left out) to 10.",
        shown="recursive messages are refused",
    )  # fmt: skip

    convert_any_fields_to_json: bool = option(
        "convert.any.fields.to.json", boolean,
        "from_protobuf's, which is refused here if it is true: an `Any` is `STRUCT<type_url: STRING, value: BINARY>`.",
        default=False,
    )  # fmt: skip

    def of_column(self, column: str) -> ColumnOptions:
        """The options of ``key`` or ``value``."""
        if column == "key":
            return ColumnOptions(
                self.key_format, self.key_schema, self.key_framing, self.key_subject, self.key_schema_version,
                self.key_descriptor_file, self.key_message,
            )  # fmt: skip
        return ColumnOptions(
            self.value_format, self.value_schema, self.value_framing, self.value_subject, self.value_schema_version,
            self.value_descriptor_file, self.value_message,
        )  # fmt: skip


@dataclass(frozen=True)
class TypedColumn:
    """How a column is decoded: a value that travels to the tasks.

    Attributes
    ----------
    name
        ``key`` or ``value``.
    schema
        The schema of the column: an Avro schema, Spark's type as JSON, or a Protobuf schema as JSON; empty for
        ``string``.
    wanted
        Dotted names of the fields that the column has; None for all.
    time_zone
        Of times in JSON that name none.
    nullable
        Whether everything in the column may be null, whatever the schema says.
    message
        The full name of a Protobuf message.
    own
        The id and the GUID that a registry has a Protobuf schema under.
    """

    name: str
    format: str
    framing: str
    schema: str
    wanted: tuple[str, ...] | None
    time_zone: str = "UTC"
    nullable: bool = True
    message: str = ""
    own: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class SchemaToWrite:
    """The schema that values are written with, and how a registry knows it; it travels to the tasks.

    `text`: of an Avro schema; a Protobuf schema as JSON, with the message first; empty for JSON.
    `id`, `guid`: None where there is no registry, or it does not say it.
    `source`: what has it, for errors.
    `path`: the message indexes of a Protobuf message.
    """

    text: str
    source: str
    id: int | None = None
    guid: str | None = None
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class WrittenColumn:
    """How a column of the sink is encoded: a value that travels to the tasks.

    `name`: ``key`` or ``value``.
    `type`: the column's.
    `given`: the text of the schema, by an option or of the column's type; empty where the registry has it. Of a file
        of descriptors it is the Protobuf schema as JSON.
    `schema`: None where tasks ask the registry.
    """

    name: str
    format: str
    framing: str
    type: DataType
    time_zone: str
    given: str = ""
    schema: SchemaToWrite | None = None
