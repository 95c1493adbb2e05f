"""The first connection of each client recognizes brokers that are too old or too new."""

import time

import pytest

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.__main__ import main
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.errors import UnsupportedVersionError
from spark_kafka_group.executor.reading.read import read
from spark_kafka_group.executor.writing.sink_columns import OutputRow, arrow_batch, sink_columns
from spark_kafka_group.executor.writing.write import write
from spark_kafka_group.options import Options
from spark_kafka_group.options.sink_options import sink_options
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire.group.non_member import NonMemberCommitter

OLD, NEW = (0, 3), (13, 20)
AT_ONCE_S = 10


@pytest.fixture
def settings(broker):
    """Of a query that has a minute for its connections."""
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.request.timeout.ms": "60000"}
    return servers | {"subscribe": "orders", "startingOffsets": "earliest", "kafkaConsumer.pollTimeoutMs": "60000"}


def stream(settings):
    driver = StreamDriver(Options.parse(settings))
    try:
        driver.latest_offset(driver.initial_offset())
    finally:
        driver.stop()


def task(settings):
    list(read(ReadTask((OffsetRange(TopicPartition("orders", 0), 0, 1),)), Options.parse(settings)))


CONNECTING = {
    "stream": stream,
    "assign": lambda settings: stream({k: v for k, v in settings.items() if k != "subscribe"}
                                      | {"assign": '{"orders":[0]}'}),
    "batch read": lambda settings: GroupKafkaDataSource(settings).reader(None).partitions(),
    "task": task,
    "dead letters": lambda settings: write(
        [arrow_batch([OutputRow("orders-dlt", None, b"", ())])],
        sink_options(Options.parse(settings), outlives=True), sink_columns(),
    ),
    "listener": lambda settings: NonMemberCommitter(Options.parse(settings), "billing").close(),
}  # fmt: skip


@pytest.mark.parametrize("who", CONNECTING)
@pytest.mark.parametrize(
    ("versions", "problem"),
    [(OLD, "this broker is Kafka .*, and 0.11 or newer is needed"), (NEW, ".*a newer one is needed")],
    ids=["too old", "too new"],
)
def test_the_first_connection_says_which_version_is_needed(broker, settings, who, versions, problem):
    broker.fetch = versions
    began = time.monotonic()
    with pytest.raises(UnsupportedVersionError, match=f"{broker.bootstrap_servers}: {problem}"):
        CONNECTING[who](settings)
    assert time.monotonic() - began < AT_ONCE_S


def test_a_command_says_which_version_is_needed(broker, capsys):
    broker.fetch = OLD
    assert main(["describe", "--bootstrap-server", broker.bootstrap_servers, "--group", "billing"]) == 1
    assert "0.11 or newer is needed" in capsys.readouterr().err
