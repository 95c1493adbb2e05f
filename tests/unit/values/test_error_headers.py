"""Headers of records that are handed on: the three dialects byte for byte, and how they are read back."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.values.error_headers import (
    DIALECTS,
    MOST_TEXT,
    Failure,
    Origin,
    Reader,
    attempts_made,
    exception_of,
    handed_on,
    handler_of,
    origin_of,
    without,
)
from spark_kafka_group.values.retry_topics import (
    dead_letter_topic,
    delay_of,
    is_internal,
    is_topic_name,
    main_topic,
    retry_topic,
    sends_dead_letters_to,
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
        return Failure.from_error(error)


def headers(dialect, attempts=1, due_ms=None, own=OWN):
    return handed_on(own, dialect, ORIGIN, failure(), READER, attempts, due_ms)


COUNTED = [
    ("retry_topic-original-timestamp", bytes.fromhex("018bcfe56800")),  # as BigInteger.toByteArray() has it
    ("retry_topic-attempts", b"\0\0\0\2"),
    ("retry_topic-backoff-timestamp", bytes.fromhex("018bcfe65260")),
]


def test_the_headers_of_connect_are_utf8_texts():
    result = headers("connect", due_ms=1_700_000_060_000)
    assert result[:3] == OWN
    assert result[-3:] == COUNTED
    [*texts, (last, trace)] = result[3:-3]
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
    result = headers("spring")
    assert result[-2:] == COUNTED[:2]  # a dead letter is not tried again
    [*values, (last, trace)] = result[3:-2]
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
    result, lengths = OWN, []
    for hop in range(1, 6):
        assert attempts_made(result) == hop - 1
        here = ORIGIN if hop == 1 else Origin(f"orders-retry-{hop}", 1, hop, 1, 1)
        assert origin_of(result, here) == ORIGIN
        result = handed_on(result, dialect, origin_of(result, here), failure(), READER, hop, None)
        lengths.append(len(result))
    assert len(set(lengths)) == 1
    assert without(result) == OWN
    assert exception_of(result) == (None if dialect == "kip1191" else "ValueError")


def test_an_attempt_in_one_byte_is_read_as_older_springs_wrote_it_and_nonsense_as_none():
    assert attempts_made([("retry_topic-attempts", b"\3")]) == 2
    assert attempts_made([("retry_topic-attempts", b"\xff\xff\xff\xff")]) == 0
    assert attempts_made([("retry_topic-attempts", b"123456789")]) == 0
    assert attempts_made([("retry_topic-attempts", None)]) == 0


TEXTS = {"topic": b"orders", "partition": b"3", "offset": b"12345"}
INTEGERS = {"topic": b"orders", "partition": b"\0\0\0\3", "offset": (12_345).to_bytes(8)}
PREFIX = {"connect": "__connect.errors.", "spring": "kafka_dlt-original-", "kip1191": "__dlq.errors."}
NO_TOPICS = [b"", b".", b"..", b"a/b", b"a b", b"a\n", b"x" * 250, b"\xff", "örders".encode(), None]
NO_TEXTS = [
    b"",
    b"-1",
    b"+1",
    b"1_0",
    b" 1",
    b"1\n",
    b"1.0",
    b"0x1",
    "\u0661\u0662".encode(),
    b"\xff",
    b"9" * 5_000,
    None,
]
NO_INTEGERS = [b"", b"\0", b"\xff" * 4, b"\xff" * 8, b"\0" * 9, None]


def where(dialect, **changed):
    known = INTEGERS if dialect == "spring" else TEXTS
    return [(f"{PREFIX[dialect]}{name}", value) for name, value in (known | changed).items()]


def impossible(dialect):
    """Headers with one impossible value."""
    numbers = NO_INTEGERS if dialect == "spring" else NO_TEXTS
    yield from ({"topic": topic} for topic in NO_TOPICS)
    yield from ({name: number} for name in ("partition", "offset") for number in numbers)
    if dialect != "spring":
        yield from ({"partition": number} for number in (b"99999999999", b"2147483648"))
        yield from ({"offset": number} for number in (b"9" * 20, b"9223372036854775808"))


HERE = Origin("bills", 1, 2, 3, 1)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_headers_that_cannot_be_right_say_nothing(dialect):
    assert origin_of(where(dialect), HERE).topic == "orders"
    for changed in impossible(dialect):
        assert origin_of(where(dialect, **changed), HERE) is HERE, changed


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", TEXTS)
def test_headers_that_are_there_twice_say_nothing(dialect, name):
    twice = where(dialect) + [header for header in where(dialect) if header[0].endswith(name)]
    assert origin_of(twice, HERE) is HERE
    assert attempts_made([("retry_topic-attempts", b"\3")] * 2) == 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_highest_partition_and_offset_are_read_and_written(dialect):
    origin = Origin("o" * 249, 2**31 - 1, 2**63 - 1, 2**63 - 1, 0)
    assert origin_of(handed_on([], dialect, origin, failure(), READER, 1, None), HERE) == origin


NAMES = [f"{prefix}{name}" for prefix in PREFIX.values() for name in TEXTS] + [
    "__connect.errors.exception.class.name", "__connect.errors.class.name", "kafka_dlt-exception-fqcn",
    "kafka_dlt-original-timestamp-type", "retry_topic-attempts", "retry_topic-original-timestamp",
]  # fmt: skip
VALUES = [*TEXTS.values(), *INTEGERS.values(), *NO_TOPICS, *NO_TEXTS, *NO_INTEGERS, b"CreateTime", b"9" * 20]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES) | st.binary() | st.none())))
def test_no_headers_stop_those_that_read_them_or_hand_on_what_they_say(sent):
    origin = origin_of(sent, HERE)
    assert is_topic_name(origin.topic)
    assert exception_of(sent) is None or exception_of(sent).isprintable()
    handler_of(sent)
    for dialect in DIALECTS:
        result = handed_on(sent, dialect, origin, failure(), READER, attempts_made(sent) + 1, 0)
        read = origin_of(result, HERE)
        assert (read.topic, read.partition, read.offset) == (origin.topic, origin.partition, origin.offset)


def test_an_exception_that_is_no_name_is_not_said():
    def said(value):
        return exception_of([("__connect.errors.exception.class.name", value)])

    assert said(b"shop.Declined") == "shop.Declined"
    assert [said(odd) for odd in (b"", None, b"\xff", b"\x1b[2Ja", b"a\nb", b"x" * 10_000)] == [None] * 6


def test_the_beginning_of_a_long_message_is_kept():
    result = Failure.from_error(ValueError("begins" + "x" * 3 * MOST_TEXT))
    assert len(result.message) == MOST_TEXT
    assert result.message.startswith("begins")


def test_the_end_of_a_long_trace_is_kept():
    def deep(depth):
        if depth == 0:
            raise ValueError("x" * 3 * MOST_TEXT)
        deep(depth - 1)

    try:
        deep(50)
    except ValueError as error:
        result = Failure.from_error(error)
    assert len(result.trace) == MOST_TEXT


def test_topics_have_spring_s_names():
    assert retry_topic("orders", 60_000) == "orders-retry-60000"
    assert dead_letter_topic("orders") == "orders-dlt"
    assert delay_of("orders-retry-60000", {60_000}) == 60_000
    assert delay_of("orders-retry-60000", {1000}) is None
    assert delay_of("orders", {60_000}) is None
    assert main_topic("orders-retry-60000", {60_000}) == "orders"
    assert main_topic("orders-retry-1", {60_000}) == "orders-retry-1"
    assert main_topic("orders-retry-060000", {60_000}) == "orders-retry-060000"  # nothing is sent there


def test_dead_letters_of_a_topic_and_of_its_retry_topics_go_to_one_topic():
    assert sends_dead_letters_to("orders-dlt", "orders")
    assert sends_dead_letters_to("orders-dlt", "orders-retry-60000")
    assert not sends_dead_letters_to("orders-dlt", "payments")
    assert not sends_dead_letters_to("orders", "orders")


def test_kafkas_own_topics_have_two_underscores_in_front():
    assert all(map(is_internal, ("__consumer_offsets", "__transaction_state", "__share_group_state", "__mine")))
    assert not any(map(is_internal, ("_schemas", "orders", "orders__")))


def test_an_exception_whose_text_raises_is_a_failure_all_the_same():
    class SpeechlessError(Exception):
        def __str__(self):
            raise KeyError("nothing")

    failure = Failure.from_error(SpeechlessError())
    assert failure.message == "<str() of this exception failed: KeyError>"
    assert failure.exception.endswith("SpeechlessError")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_exception_whose_names_are_no_text_is_named_as_far_as_they_are(dialect):
    kind = type("Declined", (Exception,), {"__qualname__": "De\udc80clined", "__module__": "shop"})
    result = Failure.from_error(kind("no\udc80"))
    said = handed_on(
        [], dialect, ORIGIN, Failure(result.exception, result.message, result.trace, kind.__qualname__), READER, 1, None
    )
    assert exception_of(said) == (None if dialect == "kip1191" else "shop.De?clined")
