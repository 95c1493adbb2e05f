"""Rows that are encoded: they wait for the task's last row where a row may not fit, and else they do not."""

import json
import pickle

import pyarrow as pa
import pytest
from support.protobuf_messages import compiled

from spark_kafka_group.errors import OptionError, UnwritableRowError
from spark_kafka_group.executor.schemas.ddl import schema_of
from spark_kafka_group.executor.schemas.typed_columns import own_zone
from spark_kafka_group.executor.values import _write_py
from spark_kafka_group.executor.writing import typed_rows
from spark_kafka_group.executor.writing.row_schemas import with_schemas
from spark_kafka_group.executor.writing.sink_columns import SinkColumns
from spark_kafka_group.options.sink_options import SinkOptions

COLUMNS = schema_of("value STRUCT<a: INT, s: STRING>, key STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>")
ROWS = 100
STRICT = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "s", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        ],
    }
)


def written(in_stream=False, **given):
    options = SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "topic": "t"} | given)
    columns = SinkColumns.from_fields(COLUMNS.fields, options)
    return options, pickle.loads(pickle.dumps(with_schemas(columns, COLUMNS.fields, options, in_stream)))


def batches(count, taken, unfit=None):
    """Batches of rows, noted as they are taken."""
    kind = pa.struct([("a", pa.int32()), ("s", pa.string())])
    for number in range(count):
        taken.append(number)
        rows = [{"a": row, "s": "Z" if number * ROWS + row == unfit else "X"} for row in range(ROWS)]
        keys = pa.array([f"k{row}" for row in range(ROWS)])
        headers = pa.nulls(ROWS, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
        yield pa.RecordBatch.from_arrays([pa.array(rows, kind), keys, headers], names=["value", "key", "headers"])


def test_a_file_with_a_schema_is_read_on_the_driver_and_its_text_travels(tmp_path):
    (tmp_path / "schema.avsc").write_text(STRICT)
    given = {"valueFormat": "avro", "valueSchema": f"file:{tmp_path}/schema.avsc"}
    _, columns = written(**given, **{"schema.registry.url": "http://127.0.0.1:1"}, in_stream=True)
    assert (columns.typed[0].given, columns.typed[0].schema) == (STRICT, None)
    (tmp_path / "schema.avsc").write_text(STRICT.replace("Y", "Z").replace('"int"', '"string"'))
    with pytest.raises(OptionError, match="cannot be written with valueSchema: the field a is int, and the schema"):
        written(**given, **{"schema.registry.url": "http://127.0.0.1:1"}, in_stream=True)


def test_the_zone_of_a_machine_whose_local_time_is_a_copy_of_a_zone_is_that_zone(monkeypatch, tmp_path):
    monkeypatch.delenv("TZ", raising=False)
    zones, local = tmp_path / "zoneinfo", tmp_path / "localtime"
    (zones / "Europe").mkdir(parents=True)
    for zone, content in {"UTC": b"TZif2 utc", "Europe/Berlin": b"TZif2 own", "Europe/Rome": b"TZif2 its"}.items():
        (zones / zone).write_bytes(content)
    assert own_zone(local, zones) == "UTC"
    local.write_bytes(b"TZif2 own")
    assert own_zone(local, zones) == "Europe/Berlin"
    local.write_bytes(b"TZif2 another")
    assert own_zone(local, zones) == "UTC"
    local.unlink()
    local.symlink_to(zones / "Europe/Rome")
    assert own_zone(local, zones) == "Europe/Rome"


PROTO = """syntax = "proto3"; package p;
message Other {} message R { int32 a = 1; message S { string s = 1; } string s = 2; }"""


def test_protobuf_is_written_by_a_text_or_a_file_of_descriptors(tmp_path):
    (tmp_path / "set").write_bytes(compiled({"r.proto": PROTO}, "r.proto"))
    made = [
        written(valueFormat="protobuf", valueMessage="R", **given)
        for given in ({"valueSchema": PROTO}, {"valueDescriptorFile": str(tmp_path / "set")})
    ]
    (tmp_path / "set").unlink()  # the schema travels
    for options, columns in made:
        rows, places = typed_rows.encoded(batches(1, []), options, columns)
        assert values(rows, places)[:2] == [b"\x12\x01X", b"\x08\x01\x12\x01X"]
        assert columns.typed[0].schema.path == (1,)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"valueSchema": PROTO}, "cannot be written with valueSchema: the schema's message Other has no field for the"),
        ({"valueSchema": PROTO, "valueMessage": "S"}, "message S has no field for the column's a: it has s"),
        ({"valueSchema": PROTO, "valueMessage": "T"}, "with valueSchema: the schema has no message T: it has p.Other"),
        ({"valueSchema": "message {"}, "with valueSchema: line 1 of the .proto text 'valueSchema' has '{'"),
        (
            {"valueDescriptorFile": "/no", "valueMessage": "R"},
            r"valueDescriptorFile \('/no'\) cannot be read: No such file",
        ),
        ({"valueDescriptorFile": __file__, "valueMessage": "R"}, "with valueDescriptorFile: it is no FileDescr"),
        (
            {"valueSchema": 'import "a.proto"; message R { A a = 1; }'},
            "the schema has no type A, which the field R.a has",
        ),
    ],
)
def test_a_schema_of_protobuf_that_cannot_take_the_column_is_named_before_rows_move(given, why):
    with pytest.raises(OptionError, match=why):
        written(valueFormat="protobuf", **given)


def test_json_without_ids_asks_no_registry():
    _, columns = written(
        keyFormat="avro", valueFormat="json", valueFraming="none", in_stream=True,
        **{"schema.registry.url": "http://127.0.0.1:1", "schema.registry.auto.register": "true"},
    )  # fmt: skip
    key, value = columns.typed
    assert (key.schema, value.schema.id) == (None, None)
    assert key.given == '"string"'


def values(made, columns):
    return [value for batch in made for value in batch.column(columns.value).to_pylist()]


@pytest.mark.parametrize("count", [0, 1, 2, 20])
@pytest.mark.parametrize("memory", [1 << 20, 1000])
def test_all_rows_are_encoded_before_the_first_is_given_where_one_may_not_fit(monkeypatch, count, memory):
    monkeypatch.setattr(typed_rows, "HELD_IN_MEMORY", memory)
    options, columns = written(valueFormat="avro", valueSchema=STRICT)
    taken = []
    made, columns = typed_rows.encoded(batches(count, taken), options, columns)
    first = next(made, None)
    assert len(taken) == count
    if first is not None:
        assert values([first, *made], columns)[:2] == [b"\0\0", b"\2\0"]
        assert first.column(columns.key)[0].as_py() == "k0"
    assert sum(batch.num_rows for batch in made) == 0


def test_rows_are_given_as_they_come_where_each_fits():
    options, columns = written(valueFormat="json")
    taken = []
    made, columns = typed_rows.encoded(batches(3, taken), options, columns)
    assert next(made).column(columns.value)[1].as_py() == b'{"a":1,"s":"X"}'
    assert taken == [0]


def test_a_row_that_does_not_fit_is_an_error_before_the_first_row():
    options, columns = written(valueFormat="avro", valueSchema=STRICT)
    made, _ = typed_rows.encoded(batches(20, [], unfit=1999), options, columns)
    with pytest.raises(UnwritableRowError, match="column value, field s: 'Z' is no symbol of the schema's enum E"):
        next(made)


def test_rows_of_more_than_2_gb_are_written_in_parts(monkeypatch):
    monkeypatch.setattr(_write_py, "MOST_BYTES", 200)
    options, columns = written(valueFormat="json", encoder="python")
    made, places = typed_rows.encoded(batches(1, []), options, columns)
    parts = list(made)
    assert len(parts) > 4
    assert values(parts, places)[99] == b'{"a":99,"s":"X"}'
    monkeypatch.setattr(_write_py, "MOST_BYTES", 10)
    with pytest.raises(UnwritableRowError, match="the row makes more than 2 GB"):
        next(typed_rows.encoded(batches(1, []), options, columns)[0])


def test_a_file_of_waiting_rows_is_in_sparks_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/nowhere,{tmp_path}")
    monkeypatch.setattr(typed_rows, "HELD_IN_MEMORY", 10)
    options, columns = written(valueFormat="avro", valueSchema=STRICT)
    folders = []
    make = typed_rows.tempfile.SpooledTemporaryFile
    monkeypatch.setattr(
        typed_rows.tempfile, "SpooledTemporaryFile", lambda size, dir: folders.append(dir) or make(size, dir=dir)
    )
    made, _ = typed_rows.encoded(batches(2, []), options, columns)
    assert sum(batch.num_rows for batch in made) == 2 * ROWS
    assert folders == [str(tmp_path)]
