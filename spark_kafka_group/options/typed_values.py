"""Options of typed columns: formats of keys and values, their schemas, and what becomes of values that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_group.options.option import Section, choice, integer, option, text
from spark_kafka_group.options.reading import DEAD_LETTER, FAIL

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

BINARY, STRING, JSON, AVRO = "binary", "string", "json", "avro"
CONFLUENT, CONFLUENT_HEADER, NONE = "confluent", "confluent-header", "none"
NULL = "null"
FORMATS = choice(BINARY, STRING, JSON, AVRO)
FRAMINGS = choice(CONFLUENT, CONFLUENT_HEADER, NONE)
SHOWN_FRAMING = "`confluent` with a registry, else `none`"


class ColumnOptions(NamedTuple):
    """The options of one column."""

    format: str
    schema: str | None
    framing: str | None
    subject: str | None
    version: int | None


@dataclass(frozen=True, repr=False)
class TypedValues(Section):
    """Formats, schemas and framings of keys and values."""

    value_format: str = option(
        "valueFormat", FORMATS,
        "What `value` holds: `binary`, `string`, `json` or `avro`. The column has the type of the schema. See [Values "
        "as columns](values.md).",
        default=BINARY,
    )  # fmt: skip
    key_format: str = option("keyFormat", FORMATS, "As `valueFormat`, for `key`.", default=BINARY)
    value_schema: str | None = option(
        "valueSchema", text,
        "The schema of the column: for `json` Spark's DDL, `id BIGINT, name STRING`, or a StructType's JSON; for "
        "`avro` an Avro schema. `file:PATH` is a file on the driver. Of a write: see [Writing](values.md#writing).",
        shown="`avro`: the latest schema of the subject",
    )  # fmt: skip
    key_schema: str | None = option("keySchema", text, "As `valueSchema`, for `key`.", shown="as of `valueSchema`")
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

    def of_column(self, column: str) -> ColumnOptions:
        """The options of ``key`` or ``value``."""
        if column == "key":
            return ColumnOptions(
                self.key_format, self.key_schema, self.key_framing, self.key_subject, self.key_schema_version
            )
        return ColumnOptions(
            self.value_format, self.value_schema, self.value_framing, self.value_subject, self.value_schema_version
        )


@dataclass(frozen=True)
class TypedColumn:
    """How a column is decoded: a value that travels to the tasks.

    Attributes
    ----------
    name
        ``key`` or ``value``.
    schema
        The schema of the column: an Avro schema, or Spark's type as JSON; empty for ``string``.
    wanted
        Dotted names of the fields that the column has; None for all.
    time_zone
        Of times in JSON that name none.
    nullable
        Whether everything in the column may be null, whatever the schema says.
    """

    name: str
    format: str
    framing: str
    schema: str
    wanted: tuple[str, ...] | None
    time_zone: str = "UTC"
    nullable: bool = True


@dataclass(frozen=True)
class SchemaToWrite:
    """The schema that values are written with, and how a registry knows it; it travels to the tasks.

    `text`: of an Avro schema; empty for JSON.
    `id`, `guid`: None where there is no registry, or it does not say it.
    `source`: what has it, for errors.
    """

    text: str
    source: str
    id: int | None = None
    guid: str | None = None


@dataclass(frozen=True)
class WrittenColumn:
    """How a column of the sink is encoded: a value that travels to the tasks.

    `name`: ``key`` or ``value``.
    `type`: the column's.
    `given`: the text of the schema, by an option or of the column's type; empty where the registry has it.
    `schema`: None where tasks ask the registry.
    """

    name: str
    format: str
    framing: str
    type: DataType
    time_zone: str
    given: str = ""
    schema: SchemaToWrite | None = None
