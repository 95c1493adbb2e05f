"""How a run begins: on its own brokers, with a query of each shape, each with topics, a group and an output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from faults.cells.registry import Cell
from faults.load import Load
from faults.once import shapes
from faults.once.stage import OUTPUT_PARTITIONS, Stage
from spark_kafka_group.testing import KafkaCluster

PARTITIONS = 2
PER_SECOND = 40.0
"""Of each topic."""


def begun(
    kafka: KafkaCluster,
    directory: Path,
    seed: int,
    of_shapes: Sequence[str],
    guarantee: str,
    session_s: float = 45.0,
    timeout_ms: int = 300_000,
) -> Stage:
    """A stage that goes on, with one query of each shape, each with topics, a group and an output of its own."""
    stage = Stage(kafka, directory, seed, guarantee, session_s, timeout_ms)
    topics: dict[str, int] = {}
    for number, shape in enumerate(of_shapes):
        names = ["left", "right"] if shape == shapes.JOIN else ["input"]
        read = {stage.topic(f"{number}-{name}", PARTITIONS): PARTITIONS for name in names}
        output = stage.topic(f"{number}-output", OUTPUT_PARTITIONS)
        stage.add(shape, read, output, f"group-{output}")
        topics |= read
    try:
        stage.begin(Load(kafka.bootstrap_servers, topics, PER_SECOND * len(topics), producers=1))
    except BaseException:
        stage.close()
        raise
    return stage


def with_brokers(
    cell: Cell, kafka: KafkaCluster | None, run: Callable[[KafkaCluster], dict[str, Any]]
) -> dict[str, Any]:
    """A run on these brokers, or on its own."""
    if kafka is not None:
        return run(kafka)
    with KafkaCluster(cell.nodes, properties=cell.properties) as own:
        return run(own)
