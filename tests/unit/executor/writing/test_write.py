"""Rows of Arrow batches become record batches, and these are sent when they are full, old, or too much together."""

import random
from collections import defaultdict

import pyarrow as pa
import pytest

from spark_kafka_group.errors import BrokerError, WriteError
from spark_kafka_group.executor import decode, encode
from spark_kafka_group.executor.writing.sink_columns import SinkColumns
from spark_kafka_group.executor.writing.write import OpenBatches
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.values.offsets import TopicPartition

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Sent:
    """Keeps what is sent, as a broker does."""

    def __init__(self):
        self.batches = []
        self.halvings = {}

    def send(self, tp, batch):
        self.batches.append((tp, batch))

    def rows(self, *columns):
        """Of each partition, in order."""
        found = defaultdict(list)
        for tp, batch in self.batches:
            builder = decode.load("auto").RecordBatchBuilder(
                columns=columns, check_crcs=False, unpacked_limit=2**24, target_bytes=2**24
            )
            builder.append(tp.topic, tp.partition, bytes(batch.data), 0, 0, batch.records)
            found[tp] += [tuple(row.values()) for row in builder.finish().to_pylist()]
        return found


class Cluster(dict):
    """Leaders by topic; a topic gets more when it is asked for again."""

    def __init__(self, later=(), **leaders):
        super().__init__(leaders)
        self.later = later
        self.asked = []
        self.looked_up = []

    def look_up(self, topics):
        self.looked_up.append(sorted(topics))

    def leaders(self, topic, refresh):
        self.asked.append((topic, refresh))
        if topic not in self:
            raise BrokerError(f"topic {topic} does not exist")
        return self.later if refresh and self.later else self[topic]


def open_batches(columns, cluster, **options):
    sent = Sent()
    parsed = SinkOptions.parse({"kafka.bootstrap.servers": "localhost:1"} | options)
    return OpenBatches(parsed, columns, encode.load("auto"), cluster, sent), sent


def table(**columns):
    return pa.record_batch(list(columns.values()), names=list(columns))


def test_rows_arrive_as_they_are():
    batch = table(
        key=pa.array([b"k", b"", None, b"k"]), value=pa.array(["one", None, "", "vier"]),
        headers=pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None, None], HEADERS),
        partition=pa.array([0, 0, 0, 0], pa.int32()),
    )  # fmt: skip
    columns = SinkColumns(value=1, key=0, headers=2, partition=3)
    writing, sent = open_batches(columns, Cluster(t=(1,)), topic="t")
    writing.add(batch, 0.0, 1_700_000_000_000)
    writing.seal_all()
    rows = sent.rows("key", "value", "headers")[TopicPartition("t", 0)]
    assert rows == [
        (b"k", b"one", [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]),
        (b"", None, None), (None, b"", None), (b"k", b"vier", None),
    ]  # fmt: skip
    ((_, batch),) = sent.batches
    assert batch.max_timestamp_ms == 1_700_000_000_000


def test_rows_go_to_the_topics_of_their_column_and_each_topic_is_looked_up_once():
    cluster = Cluster(a=(1,), b=(1, 1))
    writing, sent = open_batches(SinkColumns(value=0, topic=1), cluster)
    for _ in range(2):
        writing.add(table(value=pa.array(["1", "2", "3"]), topic=pa.array(["a", "b", "a"])), 0.0, 0)
    writing.seal_all()
    values = defaultdict(list)
    for tp, rows in sent.rows("value").items():
        values[tp.topic] += [value for (value,) in rows]
    assert values == {"a": [b"1", b"3", b"1", b"3"], "b": [b"2", b"2"]}
    assert sorted(cluster.asked) == [("a", False), ("b", False)]
    assert cluster.looked_up == [["a", "b"], []]


def test_the_option_topic_is_looked_up_before_there_is_a_row():
    writing, _ = open_batches(SinkColumns(value=0), Cluster(), topic="t")
    with pytest.raises(BrokerError, match="topic t does not exist"):
        writing.prepare()


def test_rows_without_a_key_fill_one_record_batch_after_the_other():
    random.seed(7)
    writing, sent = open_batches(SinkColumns(value=0), Cluster(t=(1, 1, 1)), topic="t", **{"kafka.batch.size": "1000"})
    for start in range(0, 3_000, 300):
        writing.add(table(value=pa.array([f"{n:090}" for n in range(start, start + 300)])), 0.0, 0)
    writing.seal_all()
    assert all(batch.records > 5 for _, batch in sent.batches[:-3])
    assert all(len(batch.data) <= 1_000 for _, batch in sent.batches)
    assert {tp.partition for tp, _ in sent.batches} == {0, 1, 2}
    values = sorted(int(value) for rows in sent.rows("value").values() for (value,) in rows)
    assert values == list(range(3_000))


def test_rows_without_a_key_change_partitions_more_often_than_record_batches_are_sent():
    writing, sent = open_batches(SinkColumns(value=0), Cluster(t=(1,) * 4), topic="t")
    for start in range(0, 40_000, 10_000):
        writing.add(table(value=pa.array([f"{n:0100}" for n in range(start, start + 10_000)])), 0.0, 0)
    writing.seal_all()
    sizes = [len(batch.data) for _, batch in sent.batches]
    assert 9 <= len(sizes) <= 12  # 4.2 MB
    assert max(sizes) <= 524_288
    of_each = [len(values) for values in sent.rows("value").values()]
    assert len(of_each) == 4
    assert min(of_each) > 0.75 * 10_000  # random, and 64 times each
    values = sorted(int(value) for rows in sent.rows("value").values() for (value,) in rows)
    assert values == list(range(40_000))


def test_record_batches_of_a_topic_become_smaller_where_they_were_halved():
    writing, sent = open_batches(SinkColumns(value=0, topic=1), Cluster(t=(1,), u=(1,)), **{"kafka.batch.size": "8000"})
    rows = table(value=pa.array([f"{n:0100}" for n in range(200)]), topic=pa.array(["t", "u"] * 100))
    writing.add(rows, 0.0, 0)
    sent.halvings["t"] = 2
    writing.add(rows, 0.0, 0)
    writing.seal_all()
    assert [sum(batch.records for tp, batch in sent.batches if tp.topic == topic) for topic in "tu"] == [200, 200]
    assert [max(len(b.data) for tp, b in sent.batches[-6:] if tp.topic == topic) // 1000 for topic in "tu"] == [1, 7]


def test_rows_of_one_key_stay_in_order_in_one_partition():
    writing, sent = open_batches(
        SinkColumns(value=1, key=0), Cluster(t=(1,) * 5), topic="t", **{"kafka.batch.size": "300"}
    )
    for start in range(0, 1_000, 100):
        numbers = range(start, start + 100)
        keys, values = pa.array([f"k{n % 7}" for n in numbers]), pa.array([str(n) for n in numbers])
        writing.add(table(key=keys, value=values), 0.0, 0)
    writing.seal_all()
    of_key = defaultdict(list)
    for tp, rows in sent.rows("key", "value").items():
        for key, value in rows:
            of_key[key].append((tp, int(value)))
    assert len(of_key) == 7
    for rows in of_key.values():
        assert len({tp for tp, _ in rows}) == 1
        assert [value for _, value in rows] == sorted(value for _, value in rows)


def test_keys_may_be_ignored():
    writing, sent = open_batches(
        SinkColumns(value=0, key=0), Cluster(t=(1,) * 9), topic="t", **{"kafka.partitioner.ignore.keys": "true"}
    )
    writing.add(table(value=pa.array([str(n) for n in range(50)])), 0.0, 0)
    writing.seal_all()
    assert len(sent.batches) == 1


def test_a_record_batch_is_sent_when_it_is_old_and_no_sooner():
    writing, sent = open_batches(SinkColumns(value=0), Cluster(t=(1,)), topic="t", **{"kafka.linger.ms": "50"})
    writing.add(table(value=pa.array(["a"])), 10.0, 0)
    writing.seal_old(10.049)
    assert sent.batches == []
    writing.add(table(value=pa.array(["b"])), 10.049, 0)
    writing.seal_old(10.05)
    assert [batch.records for _, batch in sent.batches] == [2]
    writing.seal_all()
    assert len(sent.batches) == 1


def test_open_record_batches_have_no_more_than_kafka_buffer_memory_together():
    memory = {"kafka.buffer.memory": "20000", "kafka.batch.size": "10000"}
    columns = SinkColumns(value=0, partition=1)
    writing, sent = open_batches(columns, Cluster(t=(1,) * 100), topic="t", **memory)
    for start in range(0, 1_000, 100):
        partitions = pa.array(range(100), pa.int32())
        writing.add(
            table(value=pa.array([f"{n:050}" for n in range(start, start + 100)]), partition=partitions), 0.0, 0
        )
        assert writing._open_bytes <= 20_000
    writing.seal_all()
    assert sum(batch.records for _, batch in sent.batches) == 1_000
    assert max(len(batch.data) for _, batch in sent.batches) < 1_000


def test_a_topic_that_got_partitions_is_looked_up_again_and_a_row_for_none_of_them_is_refused():
    columns, cluster = SinkColumns(value=0, partition=1), Cluster(t=(1, 1), later=(1, 1, 1))
    writing, sent = open_batches(columns, cluster, topic="t")
    writing.add(table(value=pa.array(["a", "b"]), partition=pa.array([1, 2], pa.int32())), 0.0, 0)
    writing.seal_all()
    assert {tp.partition for tp, _ in sent.batches} == {1, 2}
    with pytest.raises(WriteError, match="^t-3: a row names this partition .* the topic has 3 partitions, 0 to 2: "):
        writing.add(table(value=pa.array(["a"]), partition=pa.array([3], pa.int32())), 0.0, 0)


def test_a_row_that_is_too_large_is_refused_with_what_to_change():
    writing, _ = open_batches(SinkColumns(value=0), Cluster(t=(1,)), topic="t", **{"kafka.max.request.size": "1000"})
    with pytest.raises(
        WriteError, match=r"^t-0: a row makes a record of \d+ bytes, and kafka.max.request.size is 1000"
    ):
        writing.add(table(value=pa.array(["a", "b" * 1_000])), 0.0, 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_record_batches_are_compressed_as_asked(codec):
    options = {"kafka.compression.type": codec, "kafka.batch.size": "100000"}
    writing, sent = open_batches(SinkColumns(value=0), Cluster(t=(1,)), topic="t", **options)
    writing.add(table(value=pa.array(["x" * 1_000] * 50)), 0.0, 0)
    writing.seal_all()
    ((_, batch),) = sent.batches
    assert (len(batch.data) < 10_000) == (codec != "none")
    assert sent.rows("value")[TopicPartition("t", 0)] == [(b"x" * 1_000,)] * 50
