"""Queries that write to a topic, at least once or in transactions; and programs of several, hit at every step."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faults.cells.brokers import killed
from faults.cells.clusters import kill_all
from faults.cells.drivers import driver_kill, driver_term, jvm_kill
from faults.cells.registry import BOTH, Cell, add
from faults.evidence import GROUPKAFKA, TOPIC, TOPIC_ONCE
from faults.once import shapes
from faults.once.play import begun, play, with_brokers
from faults.once.stage import AT_LEAST_ONCE, ONCE, STANDS_WITHIN_S, Stage
from faults.once.stepping import STEPS, WITHOUT_DECISION
from faults.processes import Program
from faults.scene import Scene
from spark_kafka_group.offsets_topic.decoding import coordinator_partition
from spark_kafka_group.testing import KafkaCluster, wait_until

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


# Programs of several queries, and what is killed of them

ENDS_SOON_S = 60.0


def program_killed(stage: Stage) -> None:
    stage.program.kill()
    stage.start()


def jvm_killed(stage: Stage) -> None:
    """What decides and ends is a process of its own: it lives on, and goes on before or behind the next one's plan."""
    name, program = stage.name, stage.program
    os.kill(program.jvm(), signal.SIGKILL)
    if stage.rng.random() < 0.5:
        stage.launch()
        stage.pause(5)
        stage.disarm(name)
        stage.wait_until_started()
    else:
        stage.start()
        stage.pause(10)
        stage.disarm(name)
    gone(stage, program)


def gone(stage: Stage, program: Program) -> None:
    """What is left of a program whose JVM was killed is to end by itself."""
    try:
        wait_until(lambda: not program.pids(), within=ENDS_SOON_S)
    except TimeoutError:
        stage.left.append(f"{len(program.pids())} processes {ENDS_SOON_S:.0f} s after the JVM was killed")


def standing_killed(stage: Stage) -> None:
    """Of those that stand at a step."""
    for pid in stage.standing():
        kill_if_there(pid)
    stage.disarm(stage.name)


def kill_if_there(pid: int) -> None:
    """SIGKILL of a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def broker_killed(stage: Stage) -> None:
    """What stood goes on while the broker is away."""
    broker_away(stage, lambda: (stage.disarm(stage.name), stage.pause(3)))


def broker_away(stage: Stage, meanwhile: Callable[[], object]) -> None:
    """Kill the only broker, and start it again."""
    node = stage.kafka.node(0)
    node.kill()
    meanwhile()
    node.start()
    stage.kafka.wait_until_ready()
    if stage.watch is not None:
        stage.watch.broker_began()


# Each query stands at another step of a write


def at_all_steps(stage: Stage, steps: Sequence[str], victim: Callable[[Stage], None], what: str, ends: bool) -> None:
    """Each query stands at another step; then one kill hits all. Queries and steps go round."""
    turn = len(stage.faults)
    standing = [(query, steps[(number + turn) % len(steps)]) for number, query in enumerate(stage.queries)]
    for query, step in standing:
        stage.arm(query, step)
    stage.wait_for(lambda: all(stage.stands(query, step) for query, step in standing), STANDS_WITHIN_S)
    stage.fault(what, functools.partial(victim, stage), [step for _, step in standing], may_end=ends)


VICTIMS: Mapping[str, tuple[Callable[[Stage], None], str, bool]] = {
    "program": (program_killed, "SIGKILL of all processes of the program", False),
    "jvm": (jvm_killed, "SIGKILL of the JVM alone", False),
    "worker": (standing_killed, "SIGKILL of the Python processes that write, or decide and end", True),
    "broker": (broker_killed, "SIGKILL of the only broker, away for up to 3 s", False),
}
OF_SIX = (shapes.MAP, shapes.AGGREGATE, shapes.MAP, shapes.JOIN, shapes.AGGREGATE, shapes.MAP)
OF_THREE = (shapes.MAP, shapes.AGGREGATE, shapes.MAP)
TIMES = 20


def steps_cell(victim: str, guarantee: str) -> None:
    """A cell: programs whose queries stand at all steps of a write are hit."""
    kill, what, ends = VICTIMS[victim]
    once = guarantee == ONCE
    steps = tuple(STEPS) if once else WITHOUT_DECISION
    of_shapes = OF_SIX if once else OF_THREE

    def happen(stage: Stage) -> None:
        at_all_steps(stage, steps, kill, what, ends)

    def own(cell: Cell, seed: int, count: int, directory: Path, kafka: KafkaCluster | None) -> dict[str, Any]:
        make = functools.partial(begun, of_shapes=of_shapes, guarantee=guarantee)
        return with_brokers(
            cell, kafka, lambda found: play(make, happen, cell.name, seed, count, directory, found, len(steps))
        )

    said = "exactly once" if once else "at least once"
    text = f"{what}, while {len(steps)} queries stand at a step each of a write that is {said}"
    add(
        Cell(
            SINK, f"sink-steps-{victim}-kill{'-once' if once else ''}", text, happen, count=TIMES * len(steps),
            at_once=10 * len(steps), sources=(GROUPKAFKA,), own=own,
        )
    )  # fmt: skip


for each in VICTIMS:
    steps_cell(each, ONCE)
for each in VICTIMS:
    steps_cell(each, AT_LEAST_ONCE)
