"""Letters of records that do not fit their schema."""

import pyarrow as pa

from spark_kafka_group.errors import MalformedValueError
from spark_kafka_group.executor.writing.dead_letters import letters
from spark_kafka_group.options import Options
from spark_kafka_group.values.error_headers import ORIGINAL_TIMESTAMP, last
from spark_kafka_group.values.schema import EVERY, arrow_schema

OPTIONS = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "retryTopics": "100"})


def batch(*timestamps_ms):
    """Records of a retry topic, with a header each."""
    count = len(timestamps_ms)
    times = [None if at is None else at * 1000 for at in timestamps_ms]
    columns = {
        "key": [b"k"] * count, "value": [b"v%d" % n for n in range(count)], "topic": ["orders-retry-100"] * count,
        "partition": [3] * count, "offset": list(range(count)), "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
        "timestampType": [0] * count, "headers": [[("own", b"h")]] * count,
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(EVERY))


def test_a_letter_is_the_record_and_says_where_it_was():
    error = MalformedValueError("orders-retry-100", 3, 1, "no")
    (row,) = letters(batch(5, 6), {1: error}, OPTIONS)
    assert row[:3] == ("orders-dlt", b"k", b"v1")
    assert (row.partition, row.origin_partition) == (None, 3)
    assert row.headers[0] == ("own", b"h")
    said = dict(row.headers)
    assert (said["__connect.errors.topic"], said["__connect.errors.offset"]) == (b"orders-retry-100", b"1")
    assert said[ORIGINAL_TIMESTAMP] == b"\6"


def test_a_timestamp_that_no_calendar_has_stays_as_it_was():
    """Producers that write microseconds for milliseconds lead tens of thousands of years ahead."""
    at_ms = 1_700_000_000_000_000
    error = MalformedValueError("orders-retry-100", 3, 0, "no")
    rows = letters(batch(at_ms, None), {0: error, 1: error}, OPTIONS)
    assert [int.from_bytes(last(row.headers, ORIGINAL_TIMESTAMP), signed=True) for row in rows] == [at_ms, -1]
