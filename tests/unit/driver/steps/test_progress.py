"""Numbers of the progress: formulas, with values."""

import pytest

from spark_kafka_group.driver.steps.progress import MEANINGS, Progress
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Generation

ONE, TWO, THREE = (TopicPartition("orders", number) for number in range(3))


def progress(starts, positions, ends, committed=None, since_ms=None):
    tps = frozenset(ends)
    generation = Generation(7, "me-1", True, None, tps, "range", tps)
    return Progress(
        "billing",
        generation,
        generation.strategy,
        starts,
        positions,
        ends,
        committed or {},
        since_ms or {},
        1_000_000.0,
    )


def test_offsets_behind_latest_are_of_the_partitions_that_have_a_position():
    shown = progress({ONE: 0, TWO: 0}, {ONE: 1, TWO: 2}, {ONE: 3, TWO: 6}).to_json()["@group"]
    result = [shown[f"{which}OffsetsBehindLatest"] for which in ("min", "max", "avg")]
    assert result == [2, 4, 3.0]
    assert isinstance(result[2], float)
    shown = progress({}, {}, {}).to_json()["@group"]
    assert [shown[f"{which}OffsetsBehindLatest"] for which in ("min", "max", "avg")] == [0, 0, 0.0]


def test_every_key_has_a_meaning():
    while_brokers_lack = {"leaderlessSinceMs", "brokersAway"}
    assert {*progress({}, {}, {}).to_json()["@group"], *while_brokers_lack} == set(MEANINGS)


class TestProgress:
    def test_behind_latest_is_as_sparks_own_source_has_it(self):
        ends = {ONE: 100, TWO: 50, THREE: 7}
        shown = progress({ONE: 0, TWO: 0, THREE: 7}, {ONE: 40, TWO: 49, THREE: 7}, ends).to_json()["@group"]
        behind = {name: shown[f"{name}OffsetsBehindLatest"] for name in ("min", "max", "avg")}
        assert behind == {"min": 0, "max": 60, "avg": pytest.approx(61 / 3)}

    def test_the_lag_counts_from_the_commit_and_without_one_from_where_the_batch_starts(self):
        ends = {ONE: 100, TWO: 1050}
        assert progress({ONE: 30, TWO: 1000}, ends, ends, {ONE: 20}).lag == 80 + 50

    def test_without_partitions_everything_is_zero(self):
        shown = progress({}, {}, {}).to_json()
        assert list(shown) == ["@group"]
        assert {k: v for k, v in shown["@group"].items() if "OffsetsBehind" in k or k.startswith("lag")} == {
            "minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 0, "avgOffsetsBehindLatest": 0.0,
            "lag": 0, "lagSeconds": 0.0,
        }  # fmt: skip
