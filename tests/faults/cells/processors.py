"""Queries of a RecordProcessor, whose handler refuses some records: to two retry topics, and to dead letters."""

from __future__ import annotations

from faults.cells.brokers import killed, leader
from faults.cells.drivers import driver_kill
from faults.cells.registry import cell
from faults.cells.sinks import IN_A_TRANSACTION, workers_killed
from faults.evidence import GROUPKAFKA, PROCESSOR, PROCESSOR_ONCE
from faults.programs.handling import DEAD_LETTERS, DELAYS_MS
from faults.scene import Scene
from faults.topics import open_transactions
from spark_kafka_group.values.retry_topics import retry_topic

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


def with_retries_once(scene: Scene) -> None:
    """The same, of which the query reads and leaves committed records only."""
    with_retries(scene)
    scene.own_options |= {"kafka.isolation.level": "read_committed"}
    of_failures = dict.fromkeys([*scene.delays, scene.dead_letters], scene.topics[scene.topic])
    scene.at_end.append(lambda: open_transactions(scene.kafka, of_failures))


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
    workers_killed(scene)


@cell(
    RECORD_PROCESSOR, "SIGKILL of a partition's leader for 5 s, while a RecordProcessor hands a fourth of records on",
    sources=(GROUPKAFKA,), sink=PROCESSOR, prepare=with_retries, per_second=500, nodes=3,
)  # fmt: skip
def processor_leader_kill(scene: Scene) -> None:
    scene.pause()
    killed(scene, leader(scene), "leader")


@cell(
    RECORD_PROCESSOR, "SIGKILL of the program, while a RecordProcessor writes results, retries and dead letters once",
    sources=(GROUPKAFKA,), sink=PROCESSOR_ONCE, prepare=with_retries_once, per_second=500, session_s=15.0,
    exempt=IN_A_TRANSACTION,
)  # fmt: skip
def processor_driver_kill_once(scene: Scene) -> None:
    driver_kill(scene)


@cell(
    RECORD_PROCESSOR, "SIGKILL of all Python workers, while a RecordProcessor writes results, retries and dead letters "
    "once", sources=(GROUPKAFKA,), sink=PROCESSOR_ONCE, prepare=with_retries_once, per_second=500, session_s=15.0,
    exempt=IN_A_TRANSACTION,
)  # fmt: skip
def processor_worker_kill_once(scene: Scene) -> None:
    processor_worker_kill(scene)
