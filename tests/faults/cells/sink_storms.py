"""Storms over queries that write to topics: an aggregation, a join, and two queries in one group with a neighbour."""

from __future__ import annotations

import functools
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from faults.cells.registry import Cell, add
from faults.cells.sinks import SINK, broker_away, jvm_killed, kill_if_there, program_killed
from faults.evidence import GROUPKAFKA
from faults.load import Load
from faults.neighbours import Neighbour, of_java
from faults.once import shapes, two_hosts
from faults.once.play import PER_SECOND, play, with_brokers
from faults.once.stage import AT_LEAST_ONCE, ONCE, OUTPUT_PARTITIONS, Stage
from faults.storm import Kind, Lane, Step, drawn
from spark_kafka_group.testing import KafkaCluster, wait_until

STORM_S = 60.0
STORM_TIMEOUT_MS = 60_000
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.task.duration.threshold": "2s",  # a stage of a single task has no others to compare it with
    "spark.executor.memory": f"{two_hosts.MEMORY_MB}m",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "8",
}
LOGS = "tasks"
"""The folder of what Spark writes down of each task, in a run's."""
STORMS = [
    Lane(
        "query", 15.0,
        [
            Kind("program-kill", 2), Kind("jvm-kill", 2), Kind("program-term", 1), Kind("worker-kill", 4),
            Kind("all-workers-kill", 2), Kind("executor-kill", 2), Kind("program-pause", 1, 1, 8),
        ],
    ),
    Lane("broker", 40.0, [Kind("broker-kill", 1, 0, 4)]),
    Lane("neighbour", 20.0, [Kind("java-leave", 1, 5, 20), Kind("java-kill", 1, 5, 20)]),
]  # fmt: skip


def storming(kafka: KafkaCluster, directory: Path, seed: int, guarantee: str) -> Stage:
    """Two queries in one group, which map, and an aggregation and a join in groups of their own."""
    settings = SPECULATION | two_hosts.logged(directory / LOGS)
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    arguments = ("--two-hosts", *given, "--unsteady", str(seed))
    stage = Stage(kafka, directory, seed, guarantee, 6.0, STORM_TIMEOUT_MS, arguments)
    names = {name: stage.topic(name, 2) for name in ("grouped", "left", "right")}
    counted = stage.topic("shared", 4)
    output = stage.topic("shared-output", OUTPUT_PARTITIONS)
    for _ in range(2):
        stage.add(shapes.MAP, {counted: 4}, output, f"group-{counted}", alone=False)
    single = {shapes.AGGREGATE: ["grouped"], shapes.JOIN: ["left", "right"]}
    for shape, read in single.items():
        of_shape = stage.topic(f"{shape}-output", OUTPUT_PARTITIONS)
        stage.add(shape, {names[name]: 2 for name in read}, of_shape, f"group-{of_shape}")
    topics = {counted: 4} | dict.fromkeys(names.values(), 2)
    try:
        stage.begin(Load(kafka.bootstrap_servers, topics, 4 * PER_SECOND, producers=1))
    except BaseException:
        stage.close()
        raise
    return stage


def storm(stage: Stage) -> None:
    """A minute of faults, drawn from the seed; then all is mended."""
    steps = drawn(f"{stage.seed} {len(stage.faults)}", STORMS, STORM_S)
    kinds: list[str] = []
    mending = threading.Lock()

    def lane(of_lane: Sequence[Step], began: float) -> None:
        for step in of_lane:
            time.sleep(max(0.0, began + step.at_s - time.monotonic()))
            kinds.append(step.kind)
            happens(stage, step, mending)

    def all_lanes() -> None:
        began = time.monotonic()
        with ThreadPoolExecutor(len(steps)) as pool:
            list(pool.map(lambda of_lane: lane(of_lane, began), steps.values()))

    stage.fault("a storm", all_lanes, [], may_end=True)
    stage.hits.update(kinds)


def happens(stage: Stage, step: Step, mending: threading.Lock) -> None:
    """One fault of a storm. Faults of the program follow each other; those of others go on meanwhile."""
    match step.kind:
        case "broker-kill":
            broker_away(stage, lambda: time.sleep(step.lasts_s))  # the fault itself
        case "java-leave" | "java-kill":
            neighbour = a_neighbour(stage)
            wait_until(neighbour.reads, within=60)
            time.sleep(step.lasts_s)  # the fault itself
            neighbour.end(signal.SIGKILL if step.kind == "java-kill" else signal.SIGTERM)
        case _:
            with mending:
                of_program(stage, step)
                stage.restart_ended(may_end=True)


def a_neighbour(stage: Stage) -> Neighbour:
    """Another member of the group of two queries."""
    query = stage.queries[0]
    command = of_java(stage.kafka, next(iter(query.topics)), query.group, stage.session_s)
    neighbour = Neighbour(command, stage.directory / f"neighbour{len(stage.neighbours)}.jsonl")
    stage.closing.callback(neighbour.process.kill)
    stage.neighbours.append(neighbour)
    return neighbour


def of_program(stage: Stage, step: Step) -> None:
    """A fault of the program's processes, and its start if it has ended by that."""
    choice = random.Random(step.choice)
    match step.kind:
        case "program-kill":
            program_killed(stage)
        case "jvm-kill":
            jvm_killed(stage)
        case "program-term":
            os.kill(stage.program.process.pid, signal.SIGTERM)
            stage.program.ends(90)
            stage.start()
        case "worker-kill":
            if workers := stage.workers():
                kill_if_there(choice.choice(workers))
        case "all-workers-kill":
            for pid in stage.workers():
                kill_if_there(pid)
        case "executor-kill":
            if executors := stage.executors():
                kill_if_there(choice.choice(executors))
        case "program-pause":
            stage.program.signal_all(signal.SIGSTOP)
            time.sleep(step.lasts_s)  # the fault itself, shorter or longer than the session
            stage.program.signal_all(signal.SIGCONT)
        case _:
            raise ValueError(step.kind)


def storm_cell(guarantee: str) -> None:
    def own(cell: Cell, seed: int, count: int, directory: Path, kafka: KafkaCluster | None) -> dict[str, Any]:
        make = functools.partial(storming, guarantee=guarantee)
        line = with_brokers(cell, kafka, lambda found: play(make, storm, cell.name, seed, count, directory, found))
        tasks = two_hosts.attempts(directory / LOGS)
        return line | {"faults": len(line["gaps"]), "kinds": line["steps"], "tasks": dict(tasks)}

    once = guarantee == ONCE
    said = "exactly once" if once else "at least once"
    text = (
        f"storms of a minute, with an aggregation, a join, and two queries in a group with Java's consumer, which "
        f"write {said}, with speculation, and tasks that fail once"
    )
    add(
        Cell(
            SINK, f"sink-storm{'-once' if once else ''}", text, storm, count=30 if once else 10, at_once=10,
            sources=(GROUPKAFKA,), own=own,
        )
    )  # fmt: skip


storm_cell(ONCE)
storm_cell(AT_LEAST_ONCE)
