"""Plays a run of a stage: the fault so many times, then rest, then the judgement; returns its line for the results."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from faults.evidence import GROUPKAFKA, TOPIC, TOPIC_ONCE, Ending, Finding, Observed, Output
from faults.judge import judged
from faults.judge.rows import of_an_output
from faults.lines import gap
from faults.load import Load
from faults.once import shapes
from faults.once.shapes import Row
from faults.once.stage import ONCE, OUTPUT_PARTITIONS, PublishingQuery, Stage, sentence
from faults.topics import records, whole
from spark_kafka_group.testing import KafkaCluster

PARTITIONS = 2
PER_SECOND = 40.0
"""Of each topic."""
Happen = Callable[[Stage], None]


def play(
    make: Callable[[KafkaCluster, Path, int], Stage],
    happen: Happen,
    name: str,
    seed: int,
    count: int,
    directory: Path,
    kafka: KafkaCluster,
    faults_each: int = 1,
) -> dict[str, Any]:
    """One run.

    Parameters
    ----------
    faults_each
        How many of the `count` faults one call of `happen` makes: a fault hits several queries.
    """
    began = time.monotonic()
    stage: Stage | None = None
    outputs: list[Output] = []
    findings: list[Finding] = []
    try:
        stage = make(kafka, directory, seed)
        with stage.open():
            for _ in range(-(-count // faults_each)):
                happen(stage)
            stage.rest()
            outputs = outputs_of(stage)
    except Exception as error:  # noqa: BLE001 - it is the finding of this run
        (directory / "error").write_text(traceback.format_exc())
        findings.append(Finding("run", f"{type(error).__name__}: {str(error)[:600]}"))
    findings += [] if stage is None else judged(observed(stage, outputs))
    line = summary(name, seed, stage, outputs, findings) | {"seconds": round(time.monotonic() - began)}
    (directory / "result.json").write_text(json.dumps(line, indent=1))
    return line


def observed(stage: Stage, outputs: Sequence[Output]) -> Observed:
    """The evidence of a run. Its queries recover within a time of their own, which a problem says."""
    return Observed(
        GROUPKAFKA, TOPIC_ONCE if stage.guarantee == ONCE else TOPIC, outputs=outputs, left=tuple(stage.left),
        endings=[Ending(ended.query, sentence(ended.error)[:400], ended.wanted) for ended in stage.endings],
        problems=tuple(stage.problems), too_old={} if stage.watch is None else dict(stage.watch.too_old),
    )  # fmt: skip


def outputs_of(stage: Stage) -> list[Output]:
    """What the run has written: of each query that is alone in its group, and of each group of several."""
    logs = records(stage.kafka, {topic: count for query in stage.queries for topic, count in query.topics.items()})
    ends = stage.ends()
    groups = dict.fromkeys(query.group for query in stage.queries if not query.alone)
    together = [[query] for query in stage.queries if query.alone]
    together += [[query for query in stage.queries if query.group == group] for group in groups]
    return [output_of(stage, queries, logs, ends) for queries in together]


def output_of(stage: Stage, queries: Sequence[PublishingQuery], logs: Any, ends: Any) -> Output:
    """What one query, or the queries of one group, have written."""
    first = queries[0]
    written = dict.fromkeys(query.output for query in queries)
    output = Output(
        first.name if first.alone else first.group, first.shape,
        {place: name for place, name in logs.items() if place[0] in first.topics},
        sum((rows_of(stage, topic) for topic in written), Counter()), once=stage.guarantee == ONCE,
        ends={tp: end for tp, end in ends.items() if tp[0] in first.topics}, committed=stage.committed(first),
    )  # fmt: skip
    if not first.alone:
        delivered = Counter(place for neighbour in stage.neighbours for place, _ in neighbour.delivered())
        doubted = frozenset(place for neighbour in stage.neighbours for place, _ in neighbour.in_doubt())
        return replace(output, delivered=delivered, in_doubt=doubted)
    return replace(
        output, uncommitted=rows_of(stage, first.output, "read_uncommitted"), batches=first.checkpoint.batches(),
        ended=first.checkpoint.ends(), mended={n: choice for name, n, choice in stage.mended if name == first.name},
    )  # fmt: skip


def rows_of(stage: Stage, output: str, isolation: str = "read_committed") -> Counter[Row]:
    """The rows of an output topic."""
    found = whole(stage.kafka, {output: OUTPUT_PARTITIONS}, isolation_level=isolation)
    return Counter((record.key.decode(), record.value.decode()) for record in found)


def summary(
    name: str, seed: int, stage: Stage | None, outputs: Sequence[Output], findings: Sequence[Finding]
) -> dict[str, Any]:
    """What a run counted."""
    hits = Counter() if stage is None else stage.hits
    alone = [(output, of_an_output(output)) for output in outputs if output.ended is not None]
    more = sum(account.more.total() for output, account in alone if not output.mended)
    line: dict[str, Any] = {
        "cell": name,
        "source": GROUPKAFKA,
        "seed": seed,
        "faults": hits.total(),
        "records": 0 if stage is None or stage.load is None else len(stage.load.acknowledged),
        "rows": sum(output.rows.total() for output, _ in alone),
        "wanted_rows": sum(account.wanted.total() for _, account in alone),
        "lost": sum(found.records for found in findings if found.invariant == "nothing missing"),
        "twice": max(more, sum(found.records for found in findings if found.invariant == "nothing twice")),
        "batches": sum(batch.done_ms is not None for output, _ in alone for batch in output.batches),
        "generations": 0,
        "commits": 0,
        "restarts": 0 if stage is None else len(stage.endings),
        "gaps": [] if stage is None else [gap(fault) for fault in stage.faults],
        "violations": dict(Counter(found.invariant for found in findings)),
        "findings": [asdict(found) for found in findings][:40],
    }
    if stage is not None:
        line["steps"] = dict(hits)
        if stage.mended:
            mended = [account for output, account in alone if output.mended]
            missing, twice = (sum(getattr(one, kind).total() for one in mended) for kind in ("missing", "more"))
            line["by_choice"] = {"missing": missing, "twice": twice}
        line["ended"] = dict(Counter(sentence(ended.error)[:160] for ended in stage.endings).most_common(12))
        if stage.watch is not None:
            line["oldest_transaction_s"] = round(stage.watch.oldest_s, 1)
            line["looked"] = stage.watch.looked
    return line


# How a run begins


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
    cell: Any, kafka: KafkaCluster | None, run: Callable[[KafkaCluster], dict[str, Any]]
) -> dict[str, Any]:
    """A run on these brokers, or on its own."""
    if kafka is not None:
        return run(kafka)
    with KafkaCluster(cell.nodes, properties=cell.properties) as own:
        return run(own)
