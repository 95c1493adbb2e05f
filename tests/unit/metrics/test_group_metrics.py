"""Numbers of the progress and of the listener: formulas, with values."""

import json
import re
from decimal import Decimal

import pytest
from pyspark.sql import Row

from spark_kafka_group.driver.reporting.query_metrics import Metrics
from spark_kafka_group.driver.steps.progress import Progress
from spark_kafka_group.metrics.group_metrics import EndedBatches, ListenersCommits, handled, metrics_of
from spark_kafka_group.metrics.metric_table import METRICS, PARTITION_METRICS
from spark_kafka_group.metrics.prometheus import prometheus_name
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.timing import Timing
from spark_kafka_group.wire import Generation
from spark_kafka_group.wire.reactions import Request

ONE, TWO, THREE = (TopicPartition("orders", number) for number in range(3))
NOW_MS = 1_000_000.0


def progress(starts, positions, ends, committed=None, since_ms=None):
    tps = frozenset(ends)
    generation = Generation(7, "me-1", True, None, tps, "range", tps)
    return Progress(
        "billing", generation, generation.strategy, starts, positions, ends, committed or {}, since_ms or {}, NOW_MS
    )


class TestMetricsOf:
    @pytest.fixture
    def latest(self):
        metrics, requests = (
            Metrics(rebalances=3, lost=1, failed_commits=2, data_losses=2, offsets_lost=70),
            {r: Timing() for r in Request},
        )
        metrics.commit.record(4.0, 90.0)
        metrics.rebalance.record(250.0, 70.0)
        requests[Request.HEARTBEAT].record(1.5, 98.0)
        at, ends = {ONE: 40, TWO: 50}, {ONE: 100, TWO: 50}
        shown = progress(at, at, ends, at, {ONE: NOW_MS - 8000}).to_json()
        shown["@group"] |= metrics.to_json(requests, 5, 100.0, NOW_MS)
        return json.loads(json.dumps(shown))

    def test_ages_are_as_of_now_and_the_rest_as_of_the_trigger(self, latest):
        one = metrics_of("q", latest, ListenersCommits(), NOW_MS + 20_000)
        assert (one.query, one.group, one.member, one.role, one.strategy) == ("q", "billing", "me-1", "leader", "range")
        expected = {
            "records-lag-max": 60, "records-lag-seconds-max": 28.0, "assigned-partitions": 2, "generation": 7,
            "commit-total": 1, "failed-commit-total": 2, "commit-latency-avg": 4.0, "last-commit-latency": 4.0,
            "last-commit-seconds-ago": 30.0, "rebalance-total": 3, "failed-rebalance-total": 5,
            "memberships-lost-total": 1, "rebalance-latency-max": 250.0, "rebalance-latency-total": 250.0,
            "last-rebalance-seconds-ago": 50.0, "join-total": 0, "join-time-avg": None, "heartbeat-total": 1,
            "last-heartbeat-seconds-ago": 2.0, "last-progress-seconds-ago": 20.0,
            "data-losses-total": 2, "offsets-lost-total": 70,
        }  # fmt: skip
        assert {name: one[name] for name in expected} == expected
        assert one.partitions == {
            ONE: {"records-lag": 60, "records-lag-seconds": 28.0, "position": 40, "log-end-offset": 100},
            TWO: {"records-lag": 0, "records-lag-seconds": 0.0, "position": 50, "log-end-offset": 50},
        }

    def test_commits_of_the_listener_count(self, latest):
        newer = metrics_of("q", latest, ListenersCommits(2, 1, NOW_MS - 1000, 9.0), NOW_MS)
        assert (newer["commit-total"], newer["failed-commit-total"]) == (3, 3)
        assert (newer["last-commit-seconds-ago"], newer["last-commit-latency"]) == (1.0, 9.0)
        older = metrics_of("q", latest, ListenersCommits(2, 1, NOW_MS - 11_000, 9.0), NOW_MS)
        assert (older["last-commit-seconds-ago"], older["last-commit-latency"]) == (10.0, 4.0)

    def test_metrics_are_written_in_one_short_line(self, latest):
        assert repr(metrics_of("q", latest, ListenersCommits(), NOW_MS)) == (
            "<GroupMetrics of q: group billing, generation 7, 2 partitions, at most 60 records behind>"
        )
        assert repr(metrics_of("q", {}, ListenersCommits(), NOW_MS)) == "<GroupMetrics of q>"

    def test_of_a_replayed_batch_nothing_is_known_but_the_listeners_commits(self):
        one = metrics_of("q", {}, ListenersCommits(1), NOW_MS)
        assert {name: value for name, value in one.values.items() if value is not None} == {
            "commit-total": 1, "failed-commit-total": 0, "records-consumed-total": 0,
        }  # fmt: skip
        assert one.partitions == {}

    def test_micro_batches_that_have_ended_are_counted_with_their_rows(self, latest):
        before = metrics_of("q", latest, ListenersCommits(), NOW_MS)
        assert (before["records-consumed-total"], before["batch-duration"]) == (0, None)
        ended = EndedBatches().then(500, 90).then(20, 40)
        one = metrics_of("q", latest, ListenersCommits(), NOW_MS, batches=ended)
        assert (one["records-consumed-total"], one["batch-duration"]) == (520, 40)

    def test_numbers_that_a_query_observes_are_there_as_of_the_last_micro_batch_and_as_sums(self):
        first = {"values": Row(malformed=2, largest=Decimal("1.5"), topic="a"), "processing": Row(records=9)}
        then = {"values": Row(malformed=3, largest=None, topic="b")}
        ended = EndedBatches().then(1, 1, first).then(1, 1, then).then(1, 1)
        assert ended.observed == {("values", "malformed"): (3, 5), ("values", "largest"): (1.5, 1.5)}

    def test_brokers_are_away_for_as_long_as_the_last_trigger_says(self, latest):
        assert metrics_of("q", latest, ListenersCommits(), NOW_MS)["brokers-away-seconds"] == 0
        latest["@group"]["brokersAway"] = {"sinceMs": NOW_MS - 9000, "attempts": 3}
        assert metrics_of("q", latest, ListenersCommits(), NOW_MS + 500)["brokers-away-seconds"] == 9.0

    def test_partitions_without_a_leader_are_counted(self, latest):
        assert metrics_of("q", latest, ListenersCommits(), NOW_MS)["leaderless-partitions"] == 0
        latest["@group"]["leaderlessSinceMs"] = {"a": {"0": 1, "2": 1}, "b": {"0": 2}}
        assert metrics_of("q", latest, ListenersCommits(), NOW_MS)["leaderless-partitions"] == 3


def test_names_are_legal_for_prometheus_and_each_has_its_own():
    names = [prometheus_name(metric.name) for metric in (*METRICS, *PARTITION_METRICS)]
    assert len(set(names)) == len(names)
    assert {"kafka_consumer_records_lag", "kafka_consumer_min_offsets_behind_latest"} <= set(names)
    assert all(name.replace("_", "").isalnum() and name.islower() for name in names)


@pytest.mark.parametrize("metric", [*METRICS, *PARTITION_METRICS], ids=lambda metric: metric.name)
def test_a_line_of_help_is_understood_without_those_around_it(metric):
    """Prometheus shows it alone."""
    assert len(metric.doc.split()) >= 4
    assert re.match(r"[A-Z0-9][\w]+ ", metric.doc)
    assert metric.doc.endswith(".")
    assert not re.search(r"\b(it is|these|those|them|this|their|your)\b", metric.doc, re.IGNORECASE)
    assert not re.match(r"(The|It|They|How|Of|As) ", metric.doc)


def test_what_handlers_did_is_added_up_and_latencies_are_the_last_batch_s():
    none = dict.fromkeys(
        ("records", "done", "retried", "dead", "triesAgain", "stalled", "mostInFlight", "oldestCellMs", "latencyMs")
    )
    first = none | {
        "records": 10, "done": 7, "retried": 2, "dead": 1, "triesAgain": 5, "stalled": 0, "mostInFlight": 9,
        "oldestCellMs": 12.5, "latencyMs": [1.0, 9.0],
    }  # fmt: skip
    result = handled(handled(handled({}, none), first), first | {"mostInFlight": 3, "latencyMs": [2.0, 3.0]})
    assert handled(result, none) == result
    one = metrics_of("q", {}, ListenersCommits(), NOW_MS, result)
    assert [one[f"records-{what}-total"] for what in ("done", "retried", "dead")] == [14, 4, 2]
    assert (one["handler-retries-total"], one["handlers-stalled-total"]) == (10, 0)
    assert (one["records-in-flight-max"], one["oldest-cell-age-max"]) == (3, 12.5)
    assert (one["handler-latency-p50"], one["handler-latency-p99"]) == (2.0, 3.0)
    assert metrics_of("q", {}, ListenersCommits(), NOW_MS)["records-done-total"] is None
