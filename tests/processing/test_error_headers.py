"""Headers of records that are handed on: the three dialects byte for byte, and how they are read back."""

import struct

import pytest

from spark_kafka_group.destinations import dead_letter_topic, delay_of, main_topic, retry_topic
from spark_kafka_group.error_headers import (
    DIALECTS,
    MOST_TRACE,
    Failure,
    Origin,
    Reader,
    attempts_made,
    exception_of,
    handed_on,
    origin_of,
    without,
)

ORIGIN = Origin("orders", 3, 12_345, 1_700_000_000_000, 0)
READER = Reader("billing", "shop.charge:charge", 7)
OWN = [("trace", b"1"), ("trace", b"2"), ("nothing", None)]


def failure():
    try:
        try:
            raise TimeoutError("no answer")
        except TimeoutError as error:
            raise ValueError("schöne Grüße") from error
    except ValueError as error:
        return Failure.of(error)


def headers(dialect, attempts=1, due_ms=None, own=OWN):
    return handed_on(own, dialect, ORIGIN, failure(), READER, attempts, due_ms)


COUNTED = [
    ("retry_topic-original-timestamp", bytes.fromhex("018bcfe56800")),  # as BigInteger.toByteArray() has it
    ("retry_topic-attempts", b"\0\0\0\2"),
    ("retry_topic-backoff-timestamp", bytes.fromhex("018bcfe65260")),
]


def test_the_headers_of_connect_are_utf8_texts():
    told = headers("connect", due_ms=1_700_000_060_000)
    assert told[:3] == OWN
    assert told[-3:] == COUNTED
    [*texts, (last, trace)] = told[3:-3]
    assert texts == [
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"12345"),
        ("__connect.errors.connector.name", b"billing"),
        ("__connect.errors.task.id", b"7"),
        ("__connect.errors.stage", b"TASK_PUT"),
        ("__connect.errors.class.name", b"shop.charge:charge"),
        ("__connect.errors.exception.class.name", b"ValueError"),
        ("__connect.errors.exception.message", "schöne Grüße".encode()),
    ]
    assert last == "__connect.errors.exception.stacktrace"
    assert b"TimeoutError: no answer" in trace
    assert trace.startswith(b"Traceback")


def test_the_headers_of_spring_have_big_endian_integers():
    told = headers("spring")
    assert told[-2:] == COUNTED[:2]  # a dead letter is not tried again
    [*values, (last, trace)] = told[3:-2]
    assert values == [
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", struct.pack(">i", 3)),
        ("kafka_dlt-original-offset", struct.pack(">q", 12_345)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", 1_700_000_000_000)),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("kafka_dlt-exception-fqcn", b"ValueError"),
        ("kafka_dlt-exception-cause-fqcn", b"TimeoutError"),
        ("kafka_dlt-exception-message", "schöne Grüße".encode()),
    ]
    assert last == "kafka_dlt-exception-stacktrace"
    assert trace


def test_the_headers_of_kip_1191_are_those_of_brokers():
    assert headers("kip1191", attempts=1)[3:-2] == [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"12345"),
        ("__dlq.errors.group", b"billing"),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", "schöne Grüße".encode()),
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hops_replace_headers_count_attempts_and_keep_where_the_record_came_from(dialect):
    told, lengths = OWN, []
    for hop in range(1, 6):
        assert attempts_made(told) == hop - 1
        here = ORIGIN if hop == 1 else Origin(f"orders-retry-{hop}", 1, hop, 1, 1)
        assert origin_of(told, here) == ORIGIN
        told = handed_on(told, dialect, origin_of(told, here), failure(), READER, hop, None)
        lengths.append(len(told))
    assert len(set(lengths)) == 1
    assert without(told) == OWN
    assert exception_of(told) == (None if dialect == "kip1191" else "ValueError")


def test_an_attempt_in_one_byte_is_read_as_older_springs_wrote_it_and_nonsense_as_none():
    assert attempts_made([("retry_topic-attempts", b"\3")]) == 2
    assert attempts_made([("retry_topic-attempts", b"\xff\xff\xff\xff")]) == 0
    assert attempts_made([("retry_topic-attempts", b"123456789")]) == 0
    assert attempts_made([("retry_topic-attempts", None)]) == 0


def test_the_end_of_a_long_trace_is_kept():
    def deep(depth):
        if depth == 0:
            raise ValueError("x" * 3 * MOST_TRACE)
        deep(depth - 1)

    try:
        deep(50)
    except ValueError as error:
        told = Failure.of(error)
    assert len(told.trace) == MOST_TRACE


def test_topics_have_spring_s_names():
    assert retry_topic("orders", 60_000) == "orders-retry-60000"
    assert dead_letter_topic("orders") == "orders-dlt"
    assert delay_of("orders-retry-60000", {60_000}) == 60_000
    assert delay_of("orders-retry-60000", {1000}) is None
    assert delay_of("orders", {60_000}) is None
    assert main_topic("orders-retry-60000", {60_000}) == "orders"
    assert main_topic("orders-retry-1", {60_000}) == "orders-retry-1"
