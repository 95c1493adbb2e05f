"""GroupKafkaListener's numbers of queries that really run, in Python and for Prometheus."""

import errno
import json
import subprocess
import sys
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support import committed, name, numbered, options, produce, topic_with

from spark_kafka_group import GroupKafkaListener
from spark_kafka_group.errors import ListeningError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition

FAR_APART = {"processingTime": "10000 days"}  # Spark triggers at whole multiples: an hour may be over at once
OFTEN = {"processingTime": "200 milliseconds"}


@pytest.fixture
def start(spark, tmp_path):
    """Start a query; all are stopped in the end."""
    queries = []

    def start(settings, trigger, query_name=None, checkpoint=None):
        stream = spark.readStream.format("groupkafka").options(**settings).load()
        writer = stream.writeStream.format("noop").trigger(**trigger)
        if query_name is not None:
            writer = writer.queryName(query_name)
        queries.append(writer.option("checkpointLocation", str(tmp_path / (checkpoint or name("checkpoint")))).start())
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


def samples(text):
    """Values by name and labels, as Prometheus' own parser reads them."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(listener):
    with urllib.request.urlopen(f"http://127.0.0.1:{listener.prometheus_port}/metrics") as answer:
        return samples(answer.read().decode())


def described(kafka, group):
    """The output of the command describe, by partition."""
    command = [sys.executable, "-m", "spark_kafka_group", "describe", "--json", "--group", group]
    done = subprocess.run(
        [*command, "--bootstrap-server", kafka.bootstrap_servers], capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {TopicPartition(x["topic"], x["partition"]): x for x in lines if x["kind"] == "partition"}, lines[0]


AGES = "records-lag-seconds-max", "last-commit-seconds-ago", "last-progress-seconds-ago"


def test_ages_stay_right_where_the_clock_is_set_between_two_triggers(spark, kafka, group, start, monkeypatch):
    topic = topic_with(kafka, numbered(30, 3))
    with GroupKafkaListener(spark) as listener:
        start(options(kafka, topic, group, maxOffsetsPerTrigger=12), FAR_APART, "orders")
        wait_until(lambda: listener.commits, within=60)
        real, began_s = time.time, time.monotonic()
        (before,) = listener.metrics()["orders"]
        for set_by_s in (3600, -3600):
            monkeypatch.setattr(time, "time", lambda by_s=set_by_s: real() + by_s)
            (one,) = listener.metrics()["orders"]
            for age in AGES:
                assert before[age] <= one[age] <= before[age] + time.monotonic() - began_s + 0.001


def test_the_numbers_are_those_of_kafkas_tool_in_python_on_a_port_and_in_a_file(spark, kafka, group, start, tmp_path):
    topic = topic_with(kafka, numbered(30, 3))
    file = tmp_path / "groupkafka.prom"
    with GroupKafkaListener(spark, prometheus_port=0, prometheus_file=file) as listener:
        assert scraped(listener) == samples(file.read_text()) != {}
        query = start(options(kafka, topic, group, maxOffsetsPerTrigger=12), FAR_APART, "orders")
        wait_until(lambda: listener.commits, within=60)
        assert committed(kafka, group) == {(topic, p): 4 for p in range(3)}
        (one,) = listener.metrics()["orders"]

        by_partition, described_group = described(kafka, group)
        rows = {TopicPartition(row.topic, row.partition): row for row in kafka.describe_group(group)}
        assert {tp: values["records-lag"] for tp, values in one.partitions.items()} == dict.fromkeys(rows, 6)
        for tp, values in one.partitions.items():
            assert values["records-lag"] == rows[tp].lag == by_partition[tp]["lag"]
            assert values["position"] == rows[tp].current_offset == by_partition[tp]["current_offset"]
            assert values["log-end-offset"] == rows[tp].log_end_offset
        assert {one.member} == {row.consumer_id for row in rows.values()}
        assert (one.group, one.role, one["generation"]) == (group, "leader", described_group["generation"])
        assert (one["minOffsetsBehindLatest"], one["maxOffsetsBehindLatest"], one["avgOffsetsBehindLatest"]) == (
            6,
            6,
            6,
        )
        assert (one["commit-total"], one["failed-commit-total"], one["assigned-partitions"]) == (1, 0, 3)
        assert (one["records-consumed-total"], one["brokers-away-seconds"]) == (12, 0)
        assert 0 < one["batch-duration"] < 60_000
        # The backlog was there before the query: its age is counted from the first look.
        assert 0 < one["records-lag-seconds-max"] == pytest.approx(one["last-progress-seconds-ago"], abs=2)
        assert 0 < one["last-commit-latency"] < one["last-progress-seconds-ago"] * 1000
        assert one["last-commit-seconds-ago"] <= one["last-progress-seconds-ago"]

        labels = (("group", group), ("query", "orders"), ("source", "0"))
        wait_until(lambda: samples(file.read_text()).get(("kafka_consumer_commit_total", *labels)) == 1, within=30)
        for shown in (scraped(listener), samples(file.read_text())):
            for tp in rows:
                where = sorted([*labels, ("topic", tp.topic), ("partition", str(tp.partition))])
                assert shown["kafka_consumer_records_lag", *where] == 6
            assert shown["kafka_consumer_generation", *labels] == one["generation"]
            assert shown["kafka_consumer_avg_offsets_behind_latest", *labels] == 6
            assert shown["groupkafka_listener_commit_total",] == 1
            assert ("kafka_consumer_rebalance_latency_avg", *labels) not in shown  # there was none

        port = listener.prometheus_port
        query.stop()
        wait_until(lambda: listener.metrics() == {}, within=30)
        assert {key for key in scraped(listener) if key[0].startswith("kafka_consumer")} == set()
        wait_until(lambda: "kafka_consumer_commit_total{" not in file.read_text(), within=30)
    assert listener.prometheus_port is None
    assert not file.exists()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
    GroupKafkaListener(spark, prometheus_port=port).attach().close()  # it is free again


@pytest.mark.soak
def test_several_queries_a_restart_and_a_query_without_data(spark, kafka, group, start, progress_often):
    topic, other = topic_with(kafka, numbered(30, 3)), topic_with(kafka, [], partitions=2)
    with GroupKafkaListener(spark, prometheus_port=0) as listener:
        first = start(options(kafka, topic, group), OFTEN, "orders", "again")
        idle = start(options(kafka, other, name("group")), OFTEN)
        # Without data Spark tells of progress only in the query, and that it is idle.
        wait_until(lambda: {"orders", idle.id} <= listener.metrics().keys(), within=60)
        wait_until(lambda: listener.metrics()["orders"][0]["commit-total"] == 1, within=30)
        (empty,) = listener.metrics()[idle.id]
        assert (empty["assigned-partitions"], empty["maxOffsetsBehindLatest"], empty["commit-total"]) == (2, 0, 0)
        assert len({dict(key[1:])["group"] for key in scraped(listener) if "generation" in key[0]}) == 2
        first.stop()
        wait_until(lambda: listener.metrics().keys() == {idle.id}, within=30)
        produce(kafka, topic, numbered(30, 3))
        start(options(kafka, topic, group), OFTEN, "orders", "again")
        wait_until(lambda: "orders" in listener.metrics(), within=60)
        # Counted from 0 again, and the batch before the restart is not one of this run.
        wait_until(lambda: listener.metrics()["orders"][0]["commit-total"] == 1, within=30)
        (again,) = listener.metrics()["orders"]
        assert again["records-consumed-total"] == 30
        assert {values["position"] for values in again.partitions.values()} == {20}
        keys = [key for key in scraped(listener) if key[0] == "kafka_consumer_records_lag"]
        assert len(keys) == 5


def test_what_prometheus_needs_is_said_before_the_query_starts(spark, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"nowhere"):
        GroupKafkaListener(spark, prometheus_file=tmp_path / "nowhere" / "x.prom").attach()
    file = tmp_path / "x.prom"
    with GroupKafkaListener(spark, prometheus_port=0) as listener:
        taken = listener.prometheus_port
        in_use = f"^prometheus_port={taken} on 127.0.0.1: it is in use: close.. the earlier"
        with pytest.raises(ListeningError, match=in_use) as raised:
            GroupKafkaListener(spark, prometheus_port=taken, prometheus_file=file).attach()
        assert isinstance(raised.value, OSError)
        assert raised.value.errno == errno.EADDRINUSE
        assert not file.exists()
        port = listener.prometheus_port
        assert listener.attach() is listener  # which listens already
        assert listener.prometheus_port == port
    with pytest.raises(RuntimeError, match="this GroupKafkaListener is closed: make a new one"):
        listener.attach()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match=r"prometheus_port=9 needs .*: pip install prometheus_client"):
        GroupKafkaListener(spark, prometheus_port=9)
