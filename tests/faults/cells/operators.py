"""What operators do: offsets that are set, records and topics that are deleted, partitions that are added."""

from __future__ import annotations

import subprocess
import sys

from kafka.structs import TopicPartition

from faults.cells.registry import OPERATOR, cell
from faults.evidence import GROUPKAFKA
from faults.scene import Scene

SHIFT = 300
GOES_ON = {"failOnDataLoss": "false"}


def stopped(scene: Scene) -> dict[tuple[str, int], int]:
    """Stop the query, once it has done enough; returns where its checkpoint ends, once the load is beyond."""
    reached = scene.committed if scene.source == GROUPKAFKA else scene.ended
    scene.wait(lambda: all(reached().get(tp, 0) >= SHIFT for tp in scene.ends()))
    scene.left += scene.query.stop()
    ended = scene.ended()
    scene.wait(lambda: all(scene.ends()[tp] >= ended.get(tp, 0) + 2 * SHIFT for tp in scene.ends()))
    return ended


def planned(scene: Scene) -> dict[tuple[str, int], int]:
    """Where the last batch ends. One that the stop interrupted runs again first; then the group's offsets count."""
    return {tp: end for batch in scene.query.checkpoint.batches() for tp, end in batch.ends.items()}


def reset(scene: Scene, *how: str) -> None:
    """Set the group's offsets with the command ``reset``."""
    command = [sys.executable, "-m", "spark_kafka_group", "reset", "--bootstrap-server", scene.kafka.bootstrap_servers]
    subprocess.run([*command, "--group", scene.group, *how, "--execute"], check=True, capture_output=True, timeout=60)
    scene.operated = True


@cell(OPERATOR, "the group's offsets are set back by 300 while the query is stopped", sources=(GROUPKAFKA,))
def operator_reset_back(scene: Scene) -> None:
    with scene.fault(f"offsets set back by {SHIFT}"):
        stopped(scene)
        at = scene.committed()
        reset(scene, "--shift-by", str(-SHIFT), "--all-topics")
        scene.again += [(*tp, at[tp] - SHIFT, end) for tp, end in planned(scene).items()]
        scene.query.start()


@cell(OPERATOR, "the group's offsets are set forward by 300 while the query is stopped", sources=(GROUPKAFKA,))
def operator_reset_forward(scene: Scene) -> None:
    with scene.fault(f"offsets set forward by {SHIFT}"):
        ended = stopped(scene)
        at = scene.committed()
        reset(scene, "--shift-by", str(SHIFT), "--all-topics")
        scene.removed += [(*tp, ended[tp], at[tp] + SHIFT) for tp in ended]
        scene.again += [(*tp, at[tp] + SHIFT, end) for tp, end in planned(scene).items()]
        scene.query.start()


@cell(OPERATOR, "the group's offsets are deleted while the query is stopped", sources=(GROUPKAFKA,))
def operator_delete_offsets(scene: Scene) -> None:
    with scene.fault("offsets deleted"):
        stopped(scene)
        tps = [TopicPartition(scene.topic, p) for p in range(scene.topics[scene.topic])]
        scene.kafka.admin.delete_group_offsets(scene.group, tps)
        scene.operated = True
        scene.query.start()


def delete_records(scene: Scene, before: dict[tuple[str, int], int]) -> None:
    scene.kafka.admin.delete_records({TopicPartition(*tp): offset for tp, offset in before.items()})


@cell(OPERATOR, "records that the query has read are deleted, while it runs")
def operator_delete_records_read(scene: Scene) -> None:
    scene.pause()
    with scene.fault("records before the position deleted"):
        delete_records(scene, scene.ended())


@cell(
    OPERATOR,
    "records that the query has not read are deleted while it is stopped; failOnDataLoss=false",
    options=GOES_ON,
)
def operator_delete_records_unread(scene: Scene) -> None:
    with scene.fault("records beyond the position deleted"):
        ended = stopped(scene)
        delete_records(scene, {tp: at + SHIFT for tp, at in ended.items()})
        scene.removed += [(*tp, at, at + SHIFT) for tp, at in ended.items()]
        scene.query.start()


@cell(
    OPERATOR,
    "all records that there are at this moment are deleted, while the query runs; failOnDataLoss=false",
    options=GOES_ON,
)
def operator_delete_records_running(scene: Scene) -> None:
    scene.pause()
    with scene.fault("all records deleted"):
        before, ends = scene.ended(), scene.ends()
        delete_records(scene, ends)
        scene.removed += [(*tp, before.get(tp, 0), end) for tp, end in ends.items()]


@cell(
    OPERATOR,
    "the topic is deleted and made again, while the query runs; failOnDataLoss=false",
    options=GOES_ON,
    at_once=5,
)
def operator_topic_made_again(scene: Scene) -> None:
    assert scene.load is not None
    partitions = scene.topics[scene.topic]
    with scene.fault("topic deleted and made again", may_end=True):
        scene.load.spread(scene.topic, 0)
        scene.wait(lambda: scene.load is not None and scene.load.pending == 0)
        scene.gone |= {a.identity for a in scene.load.acknowledged}
        scene.kafka.delete_topic(scene.topic)
        scene.kafka.create_topic(scene.topic, partitions=partitions)
        scene.operated = True
        scene.load.spread(scene.topic, partitions)


@cell(OPERATOR, "a partition is added, while the query runs", at_once=10)
def operator_more_partitions(scene: Scene) -> None:
    assert scene.load is not None
    load, added = scene.load, scene.topics[scene.topic]
    with scene.fault("a partition added"):
        scene.kafka.add_partitions(scene.topic, added + 1)
        scene.topics[scene.topic] = added + 1
        load.spread(scene.topic, added + 1)
        scene.wait(lambda: any(a.partition == added for a in load.acknowledged))
