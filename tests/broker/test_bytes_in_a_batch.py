"""maxBytesPerTrigger: about so many bytes in a micro-batch, whatever the sizes of records."""

import random
import statistics

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from support import Record, topic_with
from support.triggers import cuts

from spark_kafka_group.driver import planner
from spark_kafka_group.driver.backlog.log_samples import ASSUMED, LogSamples
from spark_kafka_group.options import Options
from spark_kafka_group.testing.node import free_ports
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

pytestmark = pytest.mark.usefixtures("patience")

LIMIT = 4 * 1024 * 1024
OVERHEAD = 12  # bytes of a record beside its value, about; those of its record batch come on top
LARGEST = 1_000_000


def sizes_from_10_bytes_to_1_megabyte(count, seed):
    """As many small ones as large ones, by decades."""
    chance = random.Random(seed)
    return [int(10 * (LARGEST / 10) ** chance.random()) for _ in range(count)]


@pytest.fixture(scope="module")
def sizes():
    """The sizes of the records of each partition."""
    return [
        sizes_from_10_bytes_to_1_megabyte(250, seed=1),
        sizes_from_10_bytes_to_1_megabyte(130, seed=2),
        [1000] * 10_000,
        [10] * 10_000,
    ]


@pytest.fixture(scope="module")
def mixed(kafka, sizes):
    records = [Record(n, None, bytes(size)) for n, of_partition in enumerate(sizes) for size in of_partition]
    return topic_with(kafka, records, partitions=len(sizes), max_request_size=2 * LARGEST, linger_ms=10)


def offsets(tasks):
    """How many offsets tasks read."""
    return sum(end - start for _, start, end in cuts(tasks))


def batches_of(stream):
    """Tasks of micro-batches until all is planned. Nothing is read: it is the estimate that is tested."""
    while (batch := stream.plan()) is not None:
        stream.offset = batch[0]
        yield batch[1]


@pytest.fixture
def planned(kafka, stream_of, mixed, sizes):
    """Tasks of micro-batches of the topic, and their bytes."""

    def all_of(**more):
        stream = stream_of(kafka, {"subscribe": mixed}, startingOffsets="earliest", **more)
        for tasks in batches_of(stream):
            found = cuts(tasks)
            yield tasks, sum(sum(sizes[n][start:end]) + OVERHEAD * (end - start) for n, start, end in found)

    return all_of


@pytest.mark.soak
def test_batches_have_about_the_bytes_of_the_limit_and_miss_nothing(planned, sizes):
    batches = list(planned(maxBytesPerTrigger="4m"))
    shares = [size / LIMIT for _, size in batches[:-1]]
    assert 0.5 < statistics.fmean(shares) < 2
    assert max(shares) < 5
    read = sorted(cut for tasks, _ in batches for cut in cuts(tasks))
    for partition, of_partition in enumerate(sizes):
        ends = [(start, end) for n, start, end in read if n == partition]
        assert [start for start, _ in ends] == [0, *(end for _, end in ends[:-1])]
        assert ends[-1][1] == len(of_partition)


def test_records_of_one_size_keep_to_the_limit(kafka, stream_of):
    topic = topic_with(kafka, [Record(n % 3, None, bytes(1000)) for n in range(9000)])
    stream = stream_of(kafka, {"subscribe": topic}, startingOffsets="earliest", maxBytesPerTrigger="1m")
    counts = [offsets(tasks) for tasks in batches_of(stream)]
    assert all(0.95 < count * 1010 / (1 << 20) <= 1.001 for count in counts[:-1]), counts
    assert sum(counts) == 9000


def test_compressed_records_count_as_they_are_stored(kafka, stream_of):
    records = [Record(0, None, bytes(10_000)) for _ in range(2000)]
    topic = topic_with(kafka, records, partitions=1, compression="gzip")
    stream = stream_of(kafka, {"subscribe": topic}, startingOffsets="earliest", maxBytesPerTrigger="1m")
    assert cuts(stream.plan()[1]) == [(0, 0, 2000)]


def test_the_smaller_limit_holds(planned, sizes):
    by_offsets = [offsets(tasks) for tasks, _ in planned(maxBytesPerTrigger="1g", maxOffsetsPerTrigger=5000)]
    assert max(by_offsets) <= 5000
    assert len(by_offsets) == 5
    both = list(planned(maxBytesPerTrigger="4m", maxOffsetsPerTrigger=15_000))
    assert len(both) > 5
    assert all(offsets(tasks) <= 15_000 for tasks, _ in both)


def test_a_record_above_the_limit_is_read_alone(kafka, stream_of):
    topic = topic_with(kafka, [Record(0, None, bytes(100_000)) for _ in range(3)], partitions=1)
    stream = stream_of(kafka, {"subscribe": topic}, startingOffsets="earliest", maxBytesPerTrigger=1000)
    for offset in range(3):
        end, tasks = stream.plan()
        assert cuts(tasks) == [(0, offset, offset + 1)]
        stream.offset = end
    assert stream.plan() is None


def test_once_has_no_limit_and_available_now_keeps_it(kafka, stream_of, mixed, sizes):
    count = sum(map(len, sizes))
    once = stream_of(kafka, {"subscribe": mixed}, startingOffsets="earliest", maxBytesPerTrigger="4m")
    assert offsets(once.plan(ReadAllAvailable())[1]) == count
    now = stream_of(kafka, {"subscribe": mixed}, startingOffsets="earliest", maxBytesPerTrigger="16m")
    now.reader.prepareForTriggerAvailableNow()
    assert len(list(batches_of(now))) > 1


def test_a_restart_reads_the_planned_batch_as_it_was(kafka, stream_of, mixed):
    stream = stream_of(kafka, {"subscribe": mixed}, startingOffsets="earliest", maxBytesPerTrigger="4m")
    start = stream.reader.initialOffset()
    end, tasks = stream.plan()
    stream.restart()
    assert cuts(stream.reader.partitions(start, end)) == cuts(tasks)


def test_a_batch_is_split_into_tasks_by_its_bytes(kafka, stream_of, mixed, monkeypatch):
    """Few records, and many bytes: without the limit they are one task, as recordsPerTask says."""
    monkeypatch.setattr(planner, "BYTES_PER_TASK", 4 * 1024 * 1024)
    of = {"subscribe": mixed}
    assert len(stream_of(kafka, of, startingOffsets="earliest").plan()[1]) == 1
    assert len(stream_of(kafka, of, startingOffsets="earliest", maxBytesPerTrigger="16m").plan()[1]) > 2


def test_brokers_that_do_not_answer_are_asked_once_and_the_batch_is_planned(caplog):
    settings = {"kafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}", "subscribe": "orders"}
    samples = LogSamples(Options.parse(settings | {"kafka.request.timeout.ms": "1000"}).client)
    backlog = [OffsetRange(TopicPartition("orders", n), 0, 10_000) for n in range(2)]
    with caplog.at_level("INFO"):
        shares = samples.share(backlog, LIMIT, 0)
    samples.close()
    assert [share.size for share in shares] == [LIMIT // 2 // ASSUMED] * 2
    assert caplog.text.count("logs cannot be sampled for now") == 1
