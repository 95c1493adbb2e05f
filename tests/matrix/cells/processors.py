"""Queries of a RecordProcessor, whose handler refuses some records: to two retry topics, and to dead letters."""

from __future__ import annotations

from matrix.cells.brokers import killed, leader
from matrix.cells.drivers import driver_kill
from matrix.cells.registry import GROUPKAFKA, cell
from matrix.cells.workers import kill_all
from matrix.handling import DEAD_LETTERS, DELAYS_MS
from matrix.observed import PROCESSOR
from matrix.scene import Scene
from spark_kafka_group.retry_topics import retry_topic

RECORD_PROCESSOR = "processor"


def with_retries(scene: Scene) -> None:
    """The retry topics, and the dead-letter topic."""
    partitions = scene.topics[scene.topic]
    scene.delays = {retry_topic(scene.topic, delay): delay for delay in DELAYS_MS}
    scene.dead_letters = DEAD_LETTERS.format(topic=scene.topic)
    for topic in (*scene.delays, scene.dead_letters):
        scene.kafka.create_topic(topic, partitions=partitions)
    scene.also_read |= dict.fromkeys(scene.delays, partitions)
    scene.own_options |= {"retryTopics": ",".join(map(str, DELAYS_MS)), "includeHeaders": "true"}


@cell(
    RECORD_PROCESSOR, "SIGKILL of the program, while a RecordProcessor hands a fourth of the records on",
    sources=(GROUPKAFKA,), sink=PROCESSOR, prepare=with_retries, per_second=500,
)  # fmt: skip
def processor_driver_kill(scene: Scene) -> None:
    driver_kill(scene)


@cell(
    RECORD_PROCESSOR, "SIGKILL of all Python workers, while a RecordProcessor hands a fourth of the records on",
    sources=(GROUPKAFKA,), sink=PROCESSOR, prepare=with_retries, per_second=500,
)  # fmt: skip
def processor_worker_kill(scene: Scene) -> None:
    scene.pause(2)
    # Spark repeats tasks, but not the plan and the commit of a sink in Python, which have workers of their own.
    with scene.fault("SIGKILL of the Python workers", may_end=True):
        scene.query.note_interrupted()
        kill_all(scene)
        scene.query.note_interrupted()  # one may have ended and another one begun


@cell(
    RECORD_PROCESSOR, "SIGKILL of a partition's leader for 5 s, while a RecordProcessor hands a fourth of records on",
    sources=(GROUPKAFKA,), sink=PROCESSOR, prepare=with_retries, per_second=500, nodes=3,
)  # fmt: skip
def processor_leader_kill(scene: Scene) -> None:
    scene.pause()
    killed(scene, leader(scene), "leader")
