"""Arrow rows as records."""

import pyarrow as pa

from spark_kafka_group.processing.record import Record, records_of
from spark_kafka_group.processing.workers import Latencies, middle_us
from spark_kafka_group.values.schema import EVERY, USUAL, arrow_schema

ROWS = [
    (None, b"v", "t", 1, 5, 1_700_000_000_123_000, 0, None),
    (b"k", None, "t", 2, 6, 1_700_000_000_999_000, 1, [("a", b"1"), ("a", None)]),
    (b"", b"", "täglich", 0, 2**40, 0, -1, []),
]
RECORDS = [
    Record(None, b"v", "t", 1, 5, 1_700_000_000_123, 0),
    Record(b"k", None, "t", 2, 6, 1_700_000_000_999, 1, (("a", b"1"), ("a", None))),
    Record(b"", b"", "täglich", 0, 2**40, 0, -1),
]


def batch(columns=EVERY):
    schema = arrow_schema(columns)
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*ROWS, strict=True), schema, strict=False)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_rows_become_records_whatever_is_null():
    assert list(records_of(batch())) == RECORDS
    assert list(records_of(batch().slice(1))) == RECORDS[1:]
    assert list(records_of(batch(columns=USUAL))) == [r._replace(headers=()) for r in RECORDS]


def test_columns_may_have_another_order_and_more_may_be_there():
    turned = batch().select([*reversed(batch().schema.names)]).append_column("more", pa.array([1, 2, 3]))
    assert list(records_of(turned)) == RECORDS


def test_a_null_timestamp_is_none_in_kafka_s_terms():
    times = pa.array([None, 1_700_000_000_123_000, None], batch().schema.field("timestamp").type)
    nulls = batch().set_column(batch().schema.get_field_index("timestamp"), "timestamp", times)
    assert [record.timestamp for record in records_of(nulls)] == [-1, 1_700_000_000_123, -1]


def test_a_latency_is_exact_to_a_sixteenth():
    for us in (*range(100), *(7**n for n in range(3, 11))):
        latencies = Latencies()
        latencies.add(us * 1000 + 999)
        [(ms, count)] = latencies.milliseconds()
        assert count == 1
        assert abs(ms * 1000 - us) <= max(1, us / 16)
    assert middle_us(16) == 17
