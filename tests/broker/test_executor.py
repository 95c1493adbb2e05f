"""The executors' half against real brokers, without Spark: connections, leaders that move, ranges."""

import contextlib
import socket
import time

import pytest
from support import Record, name, numbered, options, produce, topic_with
from support.damage import batches, damaged

from spark_kafka_group import BrokerTimeoutError, CorruptRecordError, OffsetOutOfRangeError, ReadError
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.reading import read as reading
from spark_kafka_group.executor.reading.fetcher import Fetcher
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import Brokers, FetchConnection, LogClient


def parsed(kafka, topic, **more):
    return Options.parse(options(kafka, topic) | {name: str(value) for name, value in more.items()})


def task(topic, *bounds):
    return ReadTask(tuple(OffsetRange(TopicPartition(topic, p), start, end) for p, (start, end) in enumerate(bounds)))


def rows(batches):
    return [(row["partition"], row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


SMALL = {"kafka.max.partition.fetch.bytes": 200, "kafka.fetch.max.bytes": 1024}
SMALL_BATCHES = {"batch_size": 200}
"""For the producer: however slow the machine, a topic's records do not end up in one batch, which one fetch returns."""


@pytest.mark.parametrize("more", [{}, SMALL], ids=["one fetch", "many small fetches"])
def test_all_ranges_of_a_task_are_read_in_offset_order_from_every_leader(kafka3, disconnected, more):
    topic = topic_with(kafka3, numbered(600, 6), partitions=6, **SMALL_BATCHES)
    settings = parsed(kafka3, topic, **more)
    disconnected(settings)
    found = rows(read(task(topic, *[(5 * p, 100 - p) for p in range(6)]), settings))
    for p in range(6):
        mine = [(offset, value) for partition, offset, value in found if partition == p]
        assert mine == [(offset, b"v%d" % (6 * offset + p)) for offset in range(5 * p, 100 - p)]


class AskingLate(Fetcher):
    """Without read-ahead: a request is sent when the records of the response before are gone."""

    def _next_response(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self, "_send", lambda node_id: None)
            return super()._next_response()


@pytest.mark.parametrize(("fetcher_type", "ahead"), [(Fetcher, True), (AskingLate, False)], ids=["as it is", "without"])
def test_the_next_request_is_under_way_whenever_records_are_handed_out(kafka, disconnected, fetcher_type, ahead):
    topic = topic_with(kafka, numbered(500, 1), partitions=1, **SMALL_BATCHES)
    settings = parsed(kafka, topic, **SMALL)
    disconnected(settings)
    brokers = brokers_for(settings)
    fetcher = fetcher_type(brokers, task(topic, (0, 500)).ranges, decode.load("auto").scan, 30)
    reads_ahead = [not brokers.connection(1).idle for _ in fetcher.chunks()]
    assert reads_ahead == [ahead] * (len(reads_ahead) - 1) + [False]
    assert len(reads_ahead) > 10


@pytest.mark.parametrize(
    ("more", "of_partition", "of_response"),
    [
        ({}, 150_000, 200_000),
        ({"kafka.max.partition.fetch.bytes": 4000}, 4000, 8000),
        ({"kafka.fetch.max.bytes": 5000}, 5000, 5000),
    ],
    ids=["all there is", "of a partition", "of a response"],
)
def test_a_broker_sends_as_much_as_the_two_limits_allow(
    kafka, disconnected, monkeypatch, more, of_partition, of_response
):
    topic = topic_with(kafka, [Record(n % 2, None, b"x" * 1000) for n in range(160)], partitions=2, **SMALL_BATCHES)
    settings = parsed(kafka, topic, **more)
    disconnected(settings)
    receive, sizes = FetchConnection.receive, []

    def noting(connection):
        partitions = receive(connection)
        sizes.append([len(partition.records) for partition in partitions])
        return partitions

    monkeypatch.setattr(FetchConnection, "receive", noting)
    assert len(rows(read(task(topic, (0, 80), (0, 80)), settings))) == 160
    assert of_partition / 2 < max(max(of) for of in sizes) <= of_partition
    assert of_response / 2 < max(map(sum, sizes)) <= of_response


@pytest.mark.parametrize(
    ("partitions", "records", "more", "largest"),
    [
        (1, 24_000, {}, 8 << 20),
        (2, 24_000, {}, 4 << 20),
        (1, 2_600, {}, 1_800_000),
        (1, 24_000, {"kafka.max.partition.fetch.bytes": 1 << 20}, 1 << 20),
    ],
    ids=["one partition", "two share", "what is left of a range", "as the user says"],
)
def test_a_task_of_few_partitions_asks_for_more_once_it_knows_how_much_is_left(
    kafka, disconnected, partitions, records, more, largest
):
    values = [Record(n % partitions, None, b"x" * 1000) for n in range(records)]
    topic = topic_with(kafka, values, partitions=partitions)
    settings = parsed(kafka, topic, **more)
    disconnected(settings)
    each = records // partitions
    # Of the log more is there than the range has.
    ranges = task(topic, *[(0, each if each > 3_000 else each - 10)] * partitions).ranges
    fetcher = Fetcher(brokers_for(settings), ranges, decode.load("auto").scan, 30)
    sizes = {tp: [] for tp in (r.tp for r in ranges)}
    for chunk in fetcher.chunks():
        sizes[chunk.tp].append(len(chunk.records))
    for of_partition in sizes.values():
        assert of_partition[0] <= 1 << 20
        assert largest * 0.8 < max(of_partition) <= largest


def test_checksums_are_checked_unless_the_user_trusts_the_brokers(kafka, disconnected):
    topic = topic_with(kafka, [Record(0, None, b"%03d" % n) for n in range(30)], partitions=1, batch_size=10)
    (segment,) = (kafka.node(0).data / f"{topic}-0").glob("*.log")
    log = segment.read_bytes()
    assert len(batches(log)) > 2
    *_, last = batches(log)
    changed = damaged(log, len(batches(log)) - 1, "wrong checksum")
    (at,) = [at for at, (before, after) in enumerate(zip(log, changed, strict=True)) if before != after]
    with segment.open("r+b") as file:  # of a broker that runs: it sends what the file has
        file.seek(at)
        file.write(changed[at : at + 1])

    settings = parsed(kafka, topic)
    disconnected(settings)
    found = []
    with pytest.raises(CorruptRecordError, match=rf"{topic}-0: offset {last.base_offset}: .*kafka.check.crcs=false"):
        found += read(task(topic, (0, 30)), settings)
    assert [value for *_, value in rows(found)] == [b"%03d" % n for n in range(last.base_offset)]
    trusting = parsed(kafka, topic, **{"kafka.check.crcs": "false"})
    disconnected(trusting)
    values = [value for *_, value in rows(read(task(topic, (0, 30)), trusting))]
    assert len(values) == 30
    assert values[:-1] == [b"%03d" % n for n in range(29)]
    assert values[-1] != b"029"


def test_a_reader_that_is_closed_half_way_leaves_no_connection_that_owes_a_response(kafka, disconnected):
    topic = topic_with(kafka, [Record(0, None, b"x" * 1000) for _ in range(20_000)], partitions=1)
    settings = parsed(kafka, topic)
    disconnected(settings)
    batches = read(task(topic, (0, 20_000)), settings)
    next(batches)
    batches.close()
    assert len(rows(read(task(topic, (0, 50)), settings))) == 50


def test_connections_are_kept_from_task_to_task(kafka, disconnected):
    topic = topic_with(kafka, numbered(30, 3))
    settings = parsed(kafka, topic)
    disconnected(settings)
    list(read(task(topic, (0, 10)), settings))
    connection = brokers_for(settings).connection(1)
    list(read(task(topic, (0, 5), (0, 10)), settings))
    assert brokers_for(settings).connection(1) is connection


def test_every_connection_is_ended_by_the_kernel_ten_seconds_after_its_broker_has_fallen_silent(kafka, disconnected):
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    settings = parsed(kafka, topic, **{"kafka.group.id": name("group")})
    disconnected(settings)
    with contextlib.closing(LogClient(settings)) as client:
        client.log_ends([TopicPartition(topic, 0)])
        drivers = [conn.transport._sock for conn in client._consumer._client._manager._conns.values()]
        assert drivers
        for sock in [brokers_for(settings).connection(1)._sock, *drivers]:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, often, signs, unacknowledged_ms = (
                sock.getsockopt(socket.IPPROTO_TCP, kind)
                for kind in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            )
            assert (idle + often * signs, unacknowledged_ms) == (10, 10_000)


@pytest.mark.soak
def test_a_broken_connection_is_replaced(disconnected):
    with KafkaCluster() as kafka:
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        settings = parsed(kafka, topic)
        disconnected(settings)
        assert len(rows(read(task(topic, (0, 10)), settings))) == 10
        kafka.node(0).kill()
        kafka.node(0).start()
        kafka.wait_until_ready()
        assert len(rows(read(task(topic, (0, 10)), settings))) == 10


@pytest.mark.soak
def test_a_leader_that_dies_while_it_is_read_from_is_followed(kafka3, disconnected):
    topic = topic_with(kafka3, [Record(0, None, b"%d" % n + b"x" * 1000) for n in range(20_000)], partitions=1)
    settings = parsed(kafka3, topic)
    disconnected(settings)
    batches = read(task(topic, (0, 20_000)), settings)
    found = [next(batches)]
    leader = kafka3.leader(topic)
    kafka3.node(leader - 1).kill()
    try:
        found += batches
    finally:
        kafka3.node(leader - 1).start()
        kafka3.wait_until_ready()
    assert [offset for _, offset, _ in rows(found)] == list(range(20_000))


def test_a_broker_that_does_not_answer_is_an_error_after_the_poll_timeout(disconnected):
    with KafkaCluster() as kafka:
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        settings = parsed(kafka, topic, **{"kafka.request.timeout.ms": 1500, "kafkaConsumer.pollTimeoutMs": 1500})
        disconnected(settings)
        assert len(rows(read(task(topic, (0, 5)), settings))) == 5
        kafka.node(0).pause()
        with pytest.raises(BrokerTimeoutError, match=rf"no new record of {topic}-0@5 for 2 s"):
            list(read(ReadTask((OffsetRange(TopicPartition(topic, 0), 5, 10),)), settings))
        kafka.node(0).resume()


def test_an_offset_out_of_range_names_what_there_is(kafka, disconnected):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    settings = parsed(kafka, topic)
    disconnected(settings)
    with pytest.raises(
        OffsetOutOfRangeError,
        match=f"{topic}-0: offset 50: .*COULD_NOT_READ_OFFSET_RANGE. the log holds offsets 0 to 10",
    ):
        list(read(ReadTask((OffsetRange(TopicPartition(topic, 0), 50, 60),)), settings))


def test_records_deleted_before_they_were_read_are_an_error_after_the_rows_there_were(kafka, disconnected):
    from kafka.structs import TopicPartition as KafkaTopicPartition

    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    kafka.admin.delete_records({KafkaTopicPartition(topic, 1): 4})
    settings = parsed(kafka, topic)
    disconnected(settings)
    with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-1: offset 0: .* the log holds offsets 4 to 10"):
        list(read(task(topic, (0, 10), (0, 10)), settings))


def test_a_topic_that_is_gone_is_an_error_that_names_it(kafka, disconnected):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    settings = parsed(kafka, topic, **{"kafka.request.timeout.ms": 1500})
    disconnected(settings)
    kafka.delete_topic(topic)
    with pytest.raises((BrokerTimeoutError, ReadError), match=topic):
        list(read(task(topic, (0, 10)), settings))


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_a_range_that_begins_and_ends_within_record_batches_has_its_records_alone(kafka, disconnected, codec):
    topic = topic_with(
        kafka, numbered(100, 1), partitions=1, compression=codec, linger_ms=10_000, batch_size=2 * len(b"v00" * 100),
        enable_idempotence=False,
    )  # fmt: skip
    (segment,) = (kafka.node(0).data / f"{topic}-0").glob("*.log")
    stored = [(batch.base_offset, batch.next_offset) for batch in batches(segment.read_bytes())]
    start, end = (next(base + 2 for base, after in stored if after - base > 4 and base > at) for at in (10, 60))
    settings = parsed(kafka, topic)
    disconnected(settings)
    found = rows(read(task(topic, (start, end)), settings))
    assert found == [(0, offset, b"v%d" % offset) for offset in range(start, end)]


def test_a_record_larger_than_every_limit_comes_through(kafka, disconnected):
    topic = topic_with(kafka, [], partitions=1)
    produce(kafka, topic, [Record(0, None, b"x" * 900_000)])
    settings = parsed(kafka, topic, **SMALL)
    disconnected(settings)
    assert [len(value) for _, _, value in rows(read(task(topic, (0, 1)), settings))] == [900_000]


@pytest.fixture
def skipping(kafka, disconnected):
    """Reads with failOnDataLoss=false."""

    def made(topic, **more):
        settings = parsed(kafka, topic, failOnDataLoss="false", **more)
        disconnected(settings)
        return settings

    return made


def test_a_topic_deleted_before_it_was_read_is_skipped_however_short_the_stall_limit_is(kafka, skipping, caplog):
    topic, other = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
    settings = skipping(topic, **{"kafkaConsumer.pollTimeoutMs": 1000})
    kafka.delete_topic(topic)
    ranges = tuple(OffsetRange(TopicPartition(t, 0), 0, 10) for t in (topic, other))
    assert [offset for _, offset, _ in rows(read(ReadTask(ranges), settings))] == list(range(10))
    assert "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE" in caplog.text
    assert f"{topic}-0: the cluster does not have this partition any more; skipping 0 to 9" in caplog.text


@pytest.mark.soak
def test_a_topic_deleted_between_a_refused_offset_and_its_lookup_is_as_gone(kafka, skipping, caplog):
    class DeletedMeanwhile(Brokers):
        def log_bounds(self, tp):
            if tp.topic in kafka.admin.list_topics():
                kafka.delete_topic(tp.topic)
            return super().log_bounds(tp)

    short = {"kafkaConsumer.pollTimeoutMs": 3000, "kafka.request.timeout.ms": 1500}
    for fail in (False, True):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        with contextlib.closing(DeletedMeanwhile(skipping(topic, **short))) as brokers:
            fetcher = Fetcher(brokers, task(topic, (50, 60)).ranges, decode.load("auto").scan, 2, fail)
            if fail:
                with pytest.raises(OffsetOutOfRangeError, match=rf"{topic}-0: offset 50: .*Set failOnDataLoss=false"):
                    list(fetcher.chunks())
            else:
                assert list(fetcher.chunks()) == []
                assert f"{topic}-0: the cluster does not have this partition any more; skipping 50 to 59" in caplog.text


def test_reads_that_differ_in_what_they_read_share_their_connections(kafka, disconnected):
    topic = topic_with(kafka, numbered(30, 3))
    bounds = [
        {"startingOffsets": "earliest"},
        {"startingTimestamp": 1, "kafka.group.id": "somebody"},
        {"startingTimestamp": 2, "endingTimestamp": 3, "minPartitions": 5, "failOnDataLoss": "false"},
        {"startingOffsetsByTimestamp": f'{{"{topic}": 5}}', "decoder": "python", "includeHeaders": "true"},
    ]
    reads = [parsed(kafka, topic, **more) for more in bounds]
    disconnected(reads[0])
    brokers = brokers_for(reads[0])
    for settings in reads:
        assert len(rows(read(task(topic, (0, 10)), settings))) == 10
        assert brokers_for(settings) is brokers
    assert sum(brokers is made for made in reading._brokers.values()) == 1
    other = parsed(kafka, topic, **{"kafka.fetch.max.bytes": 1024})
    disconnected(other)
    assert brokers_for(other) is not brokers


def test_a_large_record_gets_through_and_its_buffer_is_not_kept(kafka, disconnected):
    topic = kafka.create_topic(name("topic"), configs={"max.message.bytes": str(16 << 20)})
    produce(kafka, topic, [Record(0, None, b"x" * (8 << 20)), Record(0, None, b"small")], max_request_size=16 << 20)
    settings = parsed(kafka, topic)
    disconnected(settings)
    batches = list(read(task(topic, (0, 1)), settings))
    assert [len(value) for batch in batches for value in batch.column("value").to_pylist()] == [8 << 20]
    connection = brokers_for(settings).connection(1)
    assert len(connection._frame) > 8 << 20
    assert [value for _, _, value in rows(read(task(topic, (1, 2)), settings))] == [b"small"]
    assert brokers_for(settings).connection(1) is connection
    assert len(connection._frame) <= 1 << 20


@pytest.mark.parametrize(
    ("more", "least_s", "most_s"),
    [
        ({"kafka.fetch.max.wait.ms": 20_000}, 0, 20),
        ({"kafka.fetch.max.wait.ms": 500, "kafka.fetch.min.bytes": 1_000_000}, 0.5, 20),
        ({"kafka.fetch.max.wait.ms": 2000, "kafka.fetch.min.bytes": 1_000_000}, 2, 20),
        ({"kafka.fetch.max.wait.ms": 20_000, "kafka.fetch.min.bytes": 100}, 0, 20),
    ],
    ids=["a byte", "more than there is", "and for longer", "as much as there is"],
)
def test_a_fetch_waits_for_its_least_bytes_and_no_longer_than_it_may(kafka, disconnected, more, least_s, most_s):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    settings = parsed(kafka, topic, **more)
    disconnected(settings)
    brokers_for(settings).connection(1)
    began = time.monotonic()
    assert len(rows(read(task(topic, (0, 10)), settings))) == 10
    assert least_s <= time.monotonic() - began < most_s
