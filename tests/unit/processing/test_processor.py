"""Options of a RecordProcessor's sink: those that it shares with the source, those of its own, and its defaults."""

import functools
import inspect
import json
from unittest.mock import MagicMock

import pytest

from spark_kafka_group import OptionError, ProducerRecord, Record, RecordProcessor
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.processing import processor
from spark_kafka_group.processing.processor_settings import TopicsWritten
from spark_kafka_group.values.schema import spark_schema

READ = {
    "kafka.bootstrap.servers": "localhost:1", "subscribe": "orders", "kafka.group.id": "billing",
    "includeHeaders": "true", "kafka.client.id": "mine", "kafka.security.protocol": "SSL",
}  # fmt: skip
ONCE = {"deliveryGuarantee": "exactly-once"}
COMMITTED = {"kafka.isolation.level": "read_committed", "kafka.transactional.id": "billing"}


def written(given=(), **more):
    return TopicsWritten.from_options(READ | more, dict(given), ())


def test_brokers_and_security_are_the_source_s_and_the_rest_is_not_taken_over():
    options = written({"kafka.linger.ms": 7, "Topic": "out"})
    for raw in (options.of_a_stream, options.of_a_batch):
        parsed = SinkOptions.parse(raw)
        assert parsed.connection.bootstrap_servers == "localhost:1"
        assert parsed.connection.client_id == "mine"
        assert parsed.security.security_protocol == "SSL"
        assert parsed.producing.linger_ms == 7
        assert parsed.writing.include_headers
        assert parsed.writing.topic is None
    assert options.topic == "out"


def test_a_record_that_was_read_can_be_written_whatever_its_size_unless_told_otherwise():
    producing = SinkOptions.parse(written().of_a_stream).producing
    assert (producing.compression_type, producing.max_request_size) == ("gzip", 100 * 1024 * 1024)
    given = {"kafka.Compression.Type": "zstd", "kafka.max.request.size": "5"}
    producing = SinkOptions.parse(written(given).of_a_stream).producing
    assert (producing.compression_type, producing.max_request_size) == ("zstd", 5)


@pytest.mark.parametrize(
    ("more", "wait_ms"),
    [({}, 2**31 - 1), ({"maxBrokerOutage": "5m"}, 300_000), ({"maxBrokerOutage": "1s"}, 30_100)],
    ids=str,
)
def test_a_stream_waits_for_brokers_as_its_source_does_and_a_batch_as_the_sink(more, wait_ms):
    options = written(**more)
    stream, batch = (SinkOptions.parse(raw).producing for raw in (options.of_a_stream, options.of_a_batch))
    assert (stream.delivery_timeout_ms, stream.max_block_ms) == (wait_ms, wait_ms)
    assert (batch.delivery_timeout_ms, batch.max_block_ms) == (120_000, 60_000)
    given = {"kafka.delivery.timeout.ms": "40000", "kafka.max.block.ms": "9"}
    stream = SinkOptions.parse(written(given, **more).of_a_stream).producing
    assert (stream.delivery_timeout_ms, stream.max_block_ms) == (40_000, 9)


def test_the_transactional_id_is_the_source_s():
    assert SinkOptions.parse(written(ONCE, **COMMITTED).of_a_stream).transactions.prefix == "billing"


@pytest.mark.parametrize(
    ("given", "more", "problem"),
    [
        ({"kafka.bootstrap.servers": "a:1"}, {}, "write_options has kafka.bootstrap.servers, .*: set it in options"),
        ({"kafka.transactional.id": "a"}, {}, "write_options has kafka.transactional.id, .*: set it in options"),
        (
            {"valueFormat": "avro", "schema.registry.url": "http://a:1", "schema.registry.auto.register": "true"},
            {},
            "schema.registry.auto.register needs valueSchema, as none is made of what handlers return",
        ),
        ({"includeHeaders": "false"}, {}, "write_options has includeHeaders: headers are always written"),
        ({"kafka.acks": "2"}, {}, "kafka.acks"),
        ({"kafka.lingr.ms": "2"}, {}, "the nearest is kafka.linger.ms"),
        ({"topic": "no topic"}, {}, "topic .*no topic"),
        (ONCE, {}, "needs kafka.transactional.id"),
        ({}, {"kafka.transactional.id": "billing"}, "kafka.transactional.id needs deliveryGuarantee=exactly-once"),
        (ONCE, {"kafka.transactional.id": "a"}, "needs kafka.isolation.level=read_committed in options"),
    ],
    ids=str,
)
def test_what_contradicts_is_said_before_data_moves(given, more, problem):
    retries = {"retry_topics": [1000], "dead_letter_topic": "dead"}
    with pytest.raises(OptionError, match=problem):
        RecordProcessor(print, options=READ | {"retryTopics": "1000"} | more, write_options=given, **retries)


def test_a_program_of_spark_connect_needs_no_way_to_the_brokers(monkeypatch):
    """The server has one."""
    monkeypatch.setattr(processor, "_totals", list)  # Spark's functions need a session
    df = MagicMock(columns=processor.REQUIRED, sparkSession=object(), schema=spark_schema(processor.REQUIRED))
    RecordProcessor(print, options=READ, write_options={"topic": "out"}).start(df, "/checkpoints/billing")
    df.mapInArrow.assert_called_once()


def test_write_options_need_options():
    with pytest.raises(OptionError, match="write_options needs options: those of the source"):
        RecordProcessor(print, write_options={"topic": "out"})


def text(record: Record) -> str:
    return "done"


async def text_later(record: Record) -> bytes:
    return b"done"


async def several(record: Record):
    yield ProducerRecord(b"")


def two(record: Record, other: int) -> None:
    pass


def none() -> None:
    pass


class Handler:
    def __call__(self, record: Record) -> dict:
        return {}


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        (text, "returns str, by its annotation: return None, a ProducerRecord, or several: "),
        (text_later, "returns bytes, by its annotation"),
        (Handler(), "returns dict, by its annotation"),
        (two, r"called with one argument, the Record, and takes \(record: .*Record.*, other: .*\)"),
        (none, r"called with one argument, the Record, and takes \(\)"),
        (several, "is an async generator: collect what it yields into a list, and return that"),
    ],
)
def test_a_handler_that_says_that_it_returns_something_else_is_refused(handler, problem):
    with pytest.raises(OptionError, match=problem):
        RecordProcessor(handler)


def decorated(handler):
    """As by a decorator that hands something in, and writes what the function returns."""

    @functools.wraps(handler)
    def called(record: Record) -> ProducerRecord:
        return ProducerRecord(json.dumps(handler(record, {})))

    return called


@decorated
def of_two(record: Record, prices: dict[str, int]) -> dict:
    return {}


class Passing:
    """Passes for the function that it wraps, as decorators of wrapt do."""

    def __init__(self, handler):
        self.__wrapped__ = handler

    @property
    def __class__(self):
        return type(self.__wrapped__)

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    def __call__(self, record: Record) -> None:
        return self.__wrapped__(record, 1)


def signed(handler):
    """As by a decorator that keeps a signature, which functools.wraps hands on."""
    handler.__signature__ = inspect.signature(handler)
    return handler


@decorated
@signed
def of_two_signed(record: Record, prices: dict[str, int]) -> dict:
    return {}


@pytest.mark.parametrize("handler", [of_two, of_two_signed, Passing(two)])
@pytest.mark.parametrize("given", [lambda handler: handler, functools.partial], ids=["itself", "partial"])
def test_a_decorated_handler_may_take_and_return_what_its_decorator_says(handler, given):
    RecordProcessor(given(handler))
