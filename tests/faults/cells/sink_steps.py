"""Programs of several queries that write to topics, killed while a query stands at every step of a write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faults.cells.registry import GROUPKAFKA, Cell, add
from faults.cells.sinks import SINK
from faults.once import shapes
from faults.once.begun import begun, with_brokers
from faults.once.play import play
from faults.once.stage import AT_LEAST_ONCE, ONCE, STANDS_WITHIN_S, Stage
from faults.once.stepping import STEPS, WITHOUT_DECISION
from faults.once.victims import broker_killed, jvm_killed, program_killed, workers_killed
from spark_kafka_group.testing import KafkaCluster


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
    "worker": (workers_killed, "SIGKILL of the Python processes that write, or decide and end", True),
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
