"""Values as others write them: Confluent's serializers, with a registry, and Debezium, with schemas of its own.

Confluent's serializers for Java are not to be had from Maven Central: those of confluent-kafka stand for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from support.registries import TestRegistry

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
NUMBERS = {"int32": "int", "int64": "long", "float": "float", "double": "double"}
"""Types of Kafka Connect, and of Avro where its name is another."""


class Written(NamedTuple):
    """A record's value, and the headers that belong to it."""

    value: bytes | None
    headers: list[tuple[str, bytes]]


def confluent(
    registry: TestRegistry,
    topic: str,
    schema: Any,
    rows: Iterable[Any],
    kind: str = AVRO,
    in_headers: bool = False,
    of_key: bool = False,
    references: Sequence[tuple[str, str, int]] = (),
) -> list[Written]:
    """What confluent-kafka's serializers make of `rows`, after the schema is registered as the subject's latest.

    Parameters
    ----------
    in_headers
        Whether the schema's GUID is in a header, instead of its id before the value; the registry must have GUIDs.
    references
        Name, subject and version of each schema that the Avro schema needs.
    """
    from confluent_kafka.schema_registry import (
        Schema,
        SchemaReference,
        SchemaRegistryClient,
        header_schema_id_serializer,
    )
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    needed = [dict(zip(("name", "subject", "version"), each, strict=True)) for each in references]
    registry.register(f"{topic}-{'key' if of_key else 'value'}", schema, kind, needed)
    conf: dict[str, Any] = {"auto.register.schemas": False, "use.latest.version": True}
    if in_headers:
        conf["schema.id.serializer"] = header_schema_id_serializer
    text, written = json.dumps(schema), []
    with SchemaRegistryClient({"url": registry.url}) as client:
        if kind == AVRO:
            asked = Schema(text, AVRO, [SchemaReference(*each) for each in references])
            serializer = AvroSerializer(client, asked, conf=conf)
        else:
            serializer = JSONSerializer(text, client, conf=conf)
        for row in rows:
            headers: list[tuple[str, bytes]] = []
            context = SerializationContext(topic, MessageField.KEY if of_key else MessageField.VALUE, headers)
            written.append(Written(serializer(row, context), headers))
    return written


def confluent_protobuf(
    registry: TestRegistry, topic: str, messages: Iterable[Any], in_headers: bool = False, of_key: bool = False
) -> list[Written]:
    """What confluent-kafka's serializer makes of messages of one class.

    It registers the schema, and those that it needs, as base64 of descriptors; where the GUID is in a header they have
    to be there.
    """
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    messages, written = list(messages), []
    conf: dict[str, Any] = {"use.deprecated.format": False}
    if in_headers:
        conf |= {"auto.register.schemas": False, "use.latest.version": True}
        conf["schema.id.serializer"] = header_schema_id_serializer
    with SchemaRegistryClient({"url": registry.url}) as client:
        serializer = ProtobufSerializer(type(next(filter(None, messages))), client, conf=conf)
        for message in messages:
            headers: list[tuple[str, bytes]] = []
            context = SerializationContext(topic, MessageField.KEY if of_key else MessageField.VALUE, headers)
            written.append(Written(serializer(message, context), headers))
    return written


# Debezium's envelopes, by the layout that its documentation of the connector for PostgreSQL has


def debezium_avro(server: str, table: str, fields: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    """The Avro schema of a table's change events.

    Parameters
    ----------
    fields
        Columns, with a type of Kafka Connect's and its default; those with default None are optional.
    """
    columns = []
    for name, (connects, default) in fields.items():
        kind = NUMBERS.get(connects, connects)
        columns.append({"name": name, "type": kind} if default is ... else _optional(name, kind))
    row = {"type": "record", "name": "Value", "fields": columns}
    source = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": [
            *({"name": name, "type": "string"} for name in ("version", "connector", "name")),
            {"name": "ts_ms", "type": "long"},
            _optional("snapshot", {"type": "string", "connect.name": "io.debezium.data.Enum"}) | {"default": None},
            *({"name": name, "type": "string"} for name in ("db", "schema", "table")),
            _optional("sequence", "string"),
            *(_optional(name, "long") for name in ("txId", "lsn", "xmin")),
        ],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": f"{server}.{table}",
        "connect.version": 2,
        "connect.name": f"{server}.{table}.Envelope",
        "fields": [
            _optional("before", row),
            _optional("after", "Value"),
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            _optional("ts_ms", "long"),
        ],
    }


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def debezium_change(
    server: str,
    table: str,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    at_ms: int = 1_700_000_000_000,
    operation: str | None = None,
    sequence: str = '[null,"24023128"]',
) -> dict[str, Any]:
    """A change event, as a row of :func:`debezium_avro` and as the payload of :func:`debezium_json`.

    Parameters
    ----------
    operation
        ``c``, ``u`` or ``d``, as `before` and `after` say, if not given; others are ``r`` of a snapshot, and ``t``.
    sequence
        Positions in the log: where the transaction before was committed, and of this change.
    """
    schema, _, name = table.rpartition(".")
    source = {
        "version": "3.6.1.Final", "connector": "postgresql", "name": server, "ts_ms": at_ms, "snapshot": "false",
        "db": "shop", "sequence": sequence, "schema": schema, "table": name, "txId": 571,
        "lsn": int(json.loads(sequence)[1]), "xmin": None,
    }  # fmt: skip
    operation = operation or ("c" if before is None else "d" if after is None else "u")
    return {"before": before, "after": after, "source": source, "op": operation, "ts_ms": at_ms + 12}


def debezium_json(change: dict[str, Any] | None, fields: dict[str, tuple[str, Any]], with_schema: bool) -> bytes | None:
    """A change event as Kafka Connect's JsonConverter writes it, with ``schemas.enable`` or without."""
    if change is None:
        return None
    value = {"schema": debezium_schema(fields), "payload": change} if with_schema else change
    return json.dumps(value, separators=(",", ":")).encode()


def debezium_schema(fields: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    """The schema that JsonConverter writes before a change event."""
    columns = [
        {"type": kind, "optional": default is not ..., "field": name} for name, (kind, default) in fields.items()
    ]
    row = {"type": "struct", "fields": columns, "optional": True, "name": "Value"}
    source = [
        {"type": "int64" if isinstance(value, int) else "string", "optional": value is None, "field": name}
        for name, value in debezium_change("", "", None, {})["source"].items()
    ]
    envelope = [
        row | {"field": "before"},
        row | {"field": "after"},
        {"type": "struct", "fields": source, "optional": False, "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    return {"type": "struct", "fields": envelope, "optional": False, "name": "Envelope", "version": 2}
