"""docs/change-data-capture.md: its streams, run as they are written, on a day of changes in each form of Debezium."""

import json
import re
from pathlib import Path

import pytest
from support import Record, name, produce
from support.day_of_changes import DayOfChanges, as_avro, as_flattened_json, as_json, as_json_with_schemas

PAGE = (Path(__file__).parents[2] / "docs/change-data-capture.md").read_text()
PROGRAM = re.search(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]
FORMS = {
    None: as_json_with_schemas,
    "JSON without schemas": as_json,
    "Avro": as_avro,
    "Flattened changes": as_flattened_json,
}
TYPED = (
    "id",
    "position",
    "deleted",
    "customer",
    "CAST(amount AS DECIMAL(10,2))",
    "state",
    "unix_micros(CAST(at AS TIMESTAMP))",
)
"""AvroConverter's times and amounts are text."""


def stream(heading):
    """The program up to its changes, with the events of a section."""
    begin, events, changes = re.split(
        r"^(?=events = |changes = )", PROGRAM.partition("\n\ndef save")[0], flags=re.MULTILINE
    )
    if heading:
        section = PAGE.partition(f"\n## {heading}\n")[2]
        events = re.search(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[1]
    begin = begin.replace("from deltalake import DeltaTable\n", "")  # for what saves changes
    return begin + events + ("" if "changes = " in events else changes)


@pytest.fixture
def changes(spark, kafka, group, apicurio, tmp_path):
    """The rows that a section's stream brings."""

    def read(heading, topic):
        code = stream(heading).replace("localhost:9092", kafka.bootstrap_servers).replace("shop.public.orders", topic)
        names = {}
        exec(code.replace("orders-table", group).replace("http://localhost:8081", apicurio.url), names)
        rows = []
        writer = (
            names["changes"].selectExpr(*TYPED).writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        )
        query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        return rows

    return read


def last_rows(changes):
    """Rows that are there in the end, computed apart."""
    changes = sorted(changes, key=lambda row: row.position)
    truncated = max((row.position for row in changes if row.id is None), default="")
    last = {row.id: row for row in changes if row.position > truncated}
    return {key: row for key, row in last.items() if not row.deleted}


@pytest.mark.parametrize(
    "heading", [pytest.param(form, marks=() if form in ("Avro", None) else pytest.mark.soak) for form in FORMS]
)
def test_the_last_change_of_each_key_is_the_row_that_the_database_has(kafka, apicurio, changes, heading):
    topic, write = name("shop.public.orders"), FORMS[heading]
    day = DayOfChanges(7, 1000, 100, truncates=heading != "Flattened changes")
    kafka.create_topic(topic, partitions=3)
    produce(kafka, topic, write(day, topic, apicurio) if heading == "Avro" else write(day))
    assert {key: row[3:] for key, row in last_rows(changes(heading, topic)).items()} == day.table()


WRITTEN = Path(__file__).with_name("captured_debezium.jsonl")
"""What Debezium 3.6.1 wrote about PostgreSQL 15, as JSON without schemas, plain and flattened.

A snapshot, changes, a new primary key, an insert that waits for a delete of its key (7), an incremental snapshot, a
truncate, and events that are sent again after a crash; only the plain ones go on after the truncate.
"""
AS_IN_POSTGRES = {
    "plain": {9: "last", 50: "twice 0", 52: "twice 2"},
    "flat": {1: "new", 4: "paid", 7: "of B", 9: "last", 100: "x", 101: "bulk", 102: "bulk", 103: "bulk"},
}


@pytest.mark.parametrize(("of", "heading"), [("plain", "JSON without schemas"), ("flat", "Flattened changes")])
def test_what_debezium_wrote_is_the_table_of_postgres(kafka, changes, of, heading):
    topic = name("shop.public.orders")
    kafka.create_topic(topic, partitions=1)
    written = [json.loads(line) for line in WRITTEN.read_text().splitlines()]
    as_bytes = [(each["key"], each["value"]) for each in written if each["topic"] == of]
    produce(kafka, topic, [Record(0, *(text and text.encode() for text in pair)) for pair in as_bytes])
    assert {key: row.state for key, row in last_rows(changes(heading, topic)).items()} == AS_IN_POSTGRES[of]


OF_OTHERS = PAGE.partition("\n## Positions of other databases\n")[2].partition("\n## ")[0]
IN_ORDER = {
    "MySQL, MariaDB": [
        (("binlog.000009", 900, 0), 0), (("binlog.000010", 4, 0), 1), (("binlog.000010", 4, 1), 9),
        (("binlog.000010", 20, 0), 2), (("binlog.000010", 20, 0), 10),
    ],
    "SQL Server": [
        (("00000027:00000758:0005", None), 9), (("00000027:00000a80:0003", "00000027:00000a70:0002"), 0),
        (("00000027:00000a80:0003", "00000027:00000a78:0002"), 1),
        (("00000028:00000001:0001", "00000027:00000a7a:0001"), 0),
    ],
    "others": [((999,), 9), ((1000,), 2), ((1000,), 10)],
}  # fmt: skip
"""The source and the offset of changes, in the order in which they happened."""


@pytest.mark.parametrize("database", IN_ORDER)
def test_positions_of_other_databases_sort_as_the_changes_happened(spark, database):
    found = re.findall(r"^\| ([^|]*) \| `([^`]*)` \| `([^`]*)`", OF_OTHERS, re.MULTILINE)
    (fields, position), *_ = (columns for name, *columns in found if name == database)
    changes = spark.createDataFrame(IN_ORDER[database], f"source STRUCT<{fields}>, offset BIGINT")
    positions = [row.position for row in changes.selectExpr(f"{position} AS position").collect()]
    assert positions == sorted(set(positions))
