"""All options of a query's role in its group, together in a query in real Spark."""

import json
import os

import pytest
from support import commit_for, committed, name, numbered, options, produce, topic_with

from spark_kafka_group.testing import wait_until

LISTENER = """
import json, os

class Told:
    def _tell(self, what, partitions):
        with open({path!r}, "a") as file:
            file.write(json.dumps([what, sorted(tp.partition for tp in partitions), os.getpid()]) + "\\n")

    def on_partitions_assigned(self, partitions):
        self._tell("assigned", partitions)

    def on_partitions_revoked(self, partitions):
        self._tell("revoked", partitions)

    def on_partitions_lost(self, partitions):
        self._tell("lost", partitions)
"""


@pytest.fixture
def listener(spark, tmp_path):
    """A rebalance listener that is shipped as users ship theirs: the option's text, and the arguments of its calls."""
    module, path = name("told").replace("-", "_"), tmp_path / "told"
    (tmp_path / f"{module}.py").write_text(LISTENER.format(path=str(path)))
    spark.sparkContext.addPyFile(str(tmp_path / f"{module}.py"))

    def calls():
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return f"{module}:Told", calls


@pytest.mark.soak
def test_a_rebalance_listener_a_strategy_paused_partitions_and_what_wins_a_conflict(
    spark, kafka, group, run, listener, tmp_path
):
    named, calls = listener
    pause = tmp_path / "pause.json"
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    pause.write_text(json.dumps({topic: [1]}))
    steered = {
        "rebalanceListener": named, "pauseFile": str(pause), "onOffsetConflict": "checkpoint",
        "kafka.partition.assignment.strategy": "roundrobin", "kafka.metadata.max.age.ms": 300,
    }  # fmt: skip

    def start():
        stream = spark.readStream.format("groupkafka").options(**options(kafka, topic, group, **steered)).load()
        return run(stream.select("partition", "offset"), {"processingTime": "0 seconds"}, place="steered")

    query, batches = start()
    query.processAllAvailable()
    assert [row for rows in batches for row in sorted(rows)] == [(0, offset) for offset in range(10)]
    assert kafka.admin.describe_groups([group])[group]["protocol_data"] == "roundrobin"
    (assigned,) = calls()
    assert assigned[:2] == ["assigned", [0, 1]]
    assert assigned[2] != os.getpid()  # it lives in Spark's process of the query's reader

    kafka.add_partitions(topic, 3)
    wait_until(lambda: len(calls()) == 3, within=60)
    assert calls()[1:] == [["revoked", [0, 1], assigned[2]], ["assigned", [0, 1, 2], assigned[2]]]
    query.stop()

    # Somebody else's word, which the group's would be for a query that says nothing else.
    wait_until(lambda: kafka.group_state(group)[0] == "Empty", within=30)
    commit_for(kafka, group, {(topic, 0): 5, (topic, 1): 3})
    pause.unlink()
    produce(kafka, topic, numbered(2, 2, first=20))
    query, batches = start()
    query.processAllAvailable()
    assert sorted(row for rows in batches for row in rows) == [(0, 10), *((1, offset) for offset in range(11))]
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 11, (topic, 1): 11}, within=30)
