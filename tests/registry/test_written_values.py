"""Values that Confluent's serializers and Debezium write, as tests of formats use them."""

import io
import json
import uuid

import fastavro
import pyarrow as pa
import pytest
from support import name
from support.written_values import JSON, confluent, debezium_avro, debezium_change, debezium_json

from spark_kafka_group.executor.schemas.registry import Registry, RegistryPatience
from spark_kafka_group.executor.values.framing import KEY_HEADER, VALUE_HEADER, header_ids
from spark_kafka_group.options.schema_registry import SchemaRegistry, urls
from spark_kafka_group.values.schema import COLUMNS

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
ORDER_JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}},
}
ROWS = [{"id": 7}, None, {"id": 8}]


def schema_of(registry, key):
    schemas = Registry(SchemaRegistry(url=urls(registry.url)))
    return json.loads(schemas.schemas([key], RegistryPatience(attempts=1))[key].text)


@pytest.mark.parametrize(("kind", "schema"), [("AVRO", ORDER), (JSON, ORDER_JSON)])
def test_the_id_before_a_value_leads_to_its_schema(registry, kind, schema):
    written = confluent(registry, name("orders"), schema, ROWS, kind)
    assert [one.headers for one in written] == [[], [], []]
    assert written[1].value is None
    for row, one in ((ROWS[0], written[0]), (ROWS[2], written[2])):
        assert one.value[0] == 0
        assert schema_of(registry, int.from_bytes(one.value[1:5])) == schema
        content = one.value[5:]
        read = json.loads(content) if kind == JSON else fastavro.schemaless_reader(io.BytesIO(content), schema, None)
        assert read == row


@pytest.mark.parametrize(("kind", "schema"), [("AVRO", ORDER), (JSON, ORDER_JSON)])
@pytest.mark.parametrize("of_key", [False, True])
def test_the_guid_in_a_header_leads_to_the_schema_of_a_bare_value(srfake, kind, schema, of_key):
    written = confluent(srfake, name("orders"), schema, ROWS, kind, in_headers=True, of_key=of_key)
    headers = pa.array([[{"key": key, "value": value} for key, value in one.headers] for one in written])
    header = KEY_HEADER if of_key else VALUE_HEADER
    ids, reasons = header_ids(headers.cast(COLUMNS["headers"][1]), header)
    assert ids[1] is None, "a tombstone has none"
    assert reasons == {1: f"its record has no header {header}"}
    assert ids[0] == ids[2] == str(uuid.UUID(ids[0]))
    assert schema_of(srfake, ids[0]) == schema
    assert written[0].value == (b'{"id":7}' if kind == JSON else b"\x0e")


FIELDS = {"id": ("int32", ...), "name": ("string", None)}


def test_debezium_s_changes_are_avro_and_json(registry):
    changes = [
        debezium_change("pg", "public.orders", None, {"id": 1, "name": "a"}),
        debezium_change("pg", "public.orders", {"id": 1, "name": "a"}, {"id": 1, "name": None}),
        debezium_change("pg", "public.orders", {"id": 1, "name": None}, None),
        None,
    ]
    assert [change and change["op"] for change in changes] == ["c", "u", "d", None]
    schema = debezium_avro("pg", "public.orders", FIELDS)
    written = confluent(registry, name("pg.public.orders"), schema, changes)
    for change, one in zip(changes[:3], written, strict=False):
        assert fastavro.schemaless_reader(io.BytesIO(one.value[5:]), schema, None) == change
        assert json.loads(debezium_json(change, FIELDS, with_schema=False)) == change
        whole = json.loads(debezium_json(change, FIELDS, with_schema=True))
        assert whole["payload"] == change
        assert [each["field"] for each in whole["schema"]["fields"]] == ["before", "after", "source", "op", "ts_ms"]
    assert written[3].value is None
    assert debezium_json(None, FIELDS, with_schema=True) is None
