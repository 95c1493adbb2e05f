"""Queries that write to a topic: at least once, by this project's sink or by Spark's own; and in transactions."""

from __future__ import annotations

from collections.abc import Callable

from faults.cells.brokers import killed
from faults.cells.drivers import driver_kill, driver_term, jvm_kill
from faults.cells.registry import BOTH, GROUPKAFKA, Cell, add
from faults.cells.workers import kill_all
from faults.judge.evidence import TOPIC, TOPIC_ONCE
from faults.scene import Scene
from spark_kafka_group.offsets_topic.decoding import coordinator_partition

SINK = "sink"
TRANSACTIONS_TOPIC = "__transaction_state"
IN_A_TRANSACTION = {"never ahead": "offsets are in the transaction of the rows, before Spark has logged the batch"}


def workers_killed(scene: Scene) -> None:
    """The tasks of the batch that runs are tried again: a sink that is at least once may have their records twice.

    Spark repeats tasks, but not the plan and the commit of a sink in Python, which have workers of their own.
    """
    scene.pause(2)
    with scene.fault("SIGKILL of the Python workers", may_end=True):
        scene.query.note_interrupted()
        kill_all(scene)
        scene.query.note_interrupted()  # one may have ended and another one begun


def leader_killed(scene: Scene) -> None:
    scene.pause()
    ((topic, partitions),) = scene.output.items()
    node = scene.kafka.leader(topic, scene.rng.randrange(partitions))
    killed(scene, scene.kafka.node(node - 1), "leader of the output")


def coordinator_killed(scene: Scene) -> None:
    scene.pause()
    partition = coordinator_partition(scene.group, 5)
    killed(scene, scene.kafka.node(scene.kafka.leader(TRANSACTIONS_TOPIC, partition) - 1), "transaction coordinator")


def written(name: str, what: str, happen: Callable[[Scene], None], sources: tuple[str, ...], nodes: int = 1) -> None:
    """Two cells: a fault under which a query writes to a topic, once at least, and once in transactions."""

    def of_a_sink(scene: Scene) -> None:
        happen(scene)

    add(Cell(SINK, f"sink-{name}", f"{what}; the sink is a topic", of_a_sink, sources=sources, nodes=nodes, sink=TOPIC))
    once = f"{what}; the sink is a topic, written in transactions"
    add(
        Cell(
            SINK, f"sink-{name}-once", once, of_a_sink, sources=(GROUPKAFKA,), nodes=nodes, sink=TOPIC_ONCE,
            exempt=IN_A_TRANSACTION, session_s=15.0,
        )
    )  # fmt: skip


written("driver-kill", "SIGKILL of all processes of the program, at a random moment", driver_kill, BOTH)
written("driver-term", "SIGTERM of the program, at a random moment", driver_term, BOTH)
written("jvm-kill", "SIGKILL of the JVM alone, at a random moment", jvm_kill, BOTH)
written("worker-kill", "SIGKILL of all Python workers, at a random moment", workers_killed, (GROUPKAFKA,))
written("leader-kill", "SIGKILL of a leader of the topic that is written, away for 5 s", leader_killed, BOTH, nodes=3)
add(
    Cell(
        SINK, "sink-coordinator-kill-once", "SIGKILL of the coordinator of the decisions' transactions, away for 5 s",
        coordinator_killed, sources=(GROUPKAFKA,), nodes=3, sink=TOPIC_ONCE,
        exempt=IN_A_TRANSACTION,
    )
)  # fmt: skip
