"""Plays a run of a stage: the fault so many times, then rest, then the verdict; returns its line for the results."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from faults.gather import records, whole
from faults.judge.invariants import Finding
from faults.judge.published import Published, Shared, judged, judged_shared
from faults.lines import gap
from faults.once.shapes import Row, expected
from faults.once.stage import ONCE, OUTPUT_PARTITIONS, PublishingQuery, Stage, sentence
from spark_kafka_group.testing import KafkaCluster

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
    at_rest: Happen | None = None,
) -> dict[str, Any]:
    """One run.

    Parameters
    ----------
    faults_each
        How many of the `count` faults one call of `happen` makes: a fault hits several queries.
    """
    began = time.monotonic()
    stage: Stage | None = None
    findings: list[Finding] = []
    published: list[Published] = []
    try:
        stage = make(kafka, directory, seed)
        with stage.open():
            for _ in range(-(-count // faults_each)):
                happen(stage)
            if at_rest is not None:
                at_rest(stage)
            stage.rest()
            published, shared = gathered(stage)
            findings = [found for query in published for found in judged(query)]
            findings += [found for group in shared for found in judged_shared(group)]
            findings += of_the_stage(stage)
    except Exception as error:  # noqa: BLE001 - it is the finding of this run
        (directory / "error").write_text(traceback.format_exc())
        findings = [*findings, Finding("run", f"{type(error).__name__}: {str(error)[:600]}")]
        findings += of_the_stage(stage) if stage is not None else []
    line = summary(name, seed, stage, published, findings) | {"seconds": round(time.monotonic() - began)}
    (directory / "result.json").write_text(json.dumps(line, indent=1))
    return line


def of_the_stage(stage: Stage) -> list[Finding]:
    """What is wrong with the run itself, its endings, its transactions and what it left."""
    found = [Finding("run", problem) for problem in stage.problems]
    found += [Finding("nothing left", thing) for thing in stage.left]
    found += [
        Finding("ended as wanted", f"{ended.query} ended by itself: {sentence(ended.error)[:400]}")
        for ended in stage.endings
        if not ended.wanted
    ]
    if stage.watch is not None:
        found += [
            Finding("not open for longer", f"{one} was open for {age_s:.0f} s, with a timeout of {stage.timeout_ms} ms")
            for one, age_s in stage.watch.too_old.items()
        ]
    return found


def gathered(stage: Stage) -> tuple[list[Published], list[Shared]]:
    """What the run has left: queries that are alone in their groups, and groups of several."""
    logs = records(stage.kafka, {topic: count for query in stage.queries for topic, count in query.topics.items()})
    ends = stage.ends()
    published, shared = [], []
    for query in stage.queries:
        if query.alone:
            published.append(of_query(stage, query, logs, ends))
    for group in dict.fromkeys(query.group for query in stage.queries if not query.alone):
        queries = [query for query in stage.queries if query.group == group]
        topics = queries[0].topics
        rows: Counter[Row] = Counter()
        for output in dict.fromkeys(query.output for query in queries):
            rows += rows_of(stage, output)
        delivered = Counter(place for neighbour in stage.neighbours for place in neighbour.delivered())
        doubted = frozenset(place for neighbour in stage.neighbours for place in neighbour.in_doubt())
        shared.append(
            Shared(
                {place: name for place, name in logs.items() if place[0] in topics}, rows, stage.guarantee == ONCE,
                delivered, doubted, {tp: end for tp, end in ends.items() if tp[0] in topics},
                stage.committed(queries[0]),
            )
        )  # fmt: skip
    return published, shared


def of_query(stage: Stage, query: PublishingQuery, logs: Any, ends: Any) -> Published:
    """One that is alone in its group."""
    return Published(
        query.name, query.shape, stage.guarantee == ONCE, query.checkpoint.batches(),
        {place: name for place, name in logs.items() if place[0] in query.topics},
        rows_of(stage, query.output), rows_of(stage, query.output, "read_uncommitted"),
        {tp: end for tp, end in ends.items() if tp[0] in query.topics}, stage.committed(query),
        query.checkpoint.ends(), {number: choice for name, number, choice in stage.mended if name == query.name},
    )  # fmt: skip


def rows_of(stage: Stage, output: str, isolation: str = "read_committed") -> Counter[Row]:
    """The rows of an output topic."""
    found = whole(stage.kafka, {output: OUTPUT_PARTITIONS}, isolation_level=isolation)
    return Counter((record.key.decode(), record.value.decode()) for record in found)


def summary(
    name: str, seed: int, stage: Stage | None, published: list[Published], findings: list[Finding]
) -> dict[str, Any]:
    """What a run counted."""
    hits = Counter() if stage is None else stage.hits
    counted = [(bool(query.mended), *query.missing_and_more()) for query in published]
    more = sum(twice.total() for mended, _, twice in counted if not mended)
    line: dict[str, Any] = {
        "cell": name,
        "source": "groupkafka",
        "seed": seed,
        "faults": hits.total(),
        "records": 0 if stage is None or stage.load is None else len(stage.load.acknowledged),
        "rows": sum(query.rows.total() for query in published),
        "wanted_rows": sum(expected(q.shape, q.batches, q.log).total() for q in published),
        "lost": sum(found.records for found in findings if found.invariant == "nothing missing"),
        "twice": max(more, sum(found.records for found in findings if found.invariant == "nothing twice")),
        "batches": sum(batch.done_ms is not None for query in published for batch in query.batches),
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
            missing, twice = (sum(one[at].total() for one in counted if one[0]) for at in (1, 2))
            line["by_choice"] = {"missing": missing, "twice": twice}
        line["ended"] = dict(Counter(sentence(ended.error)[:160] for ended in stage.endings).most_common(12))
        if stage.watch is not None:
            line["oldest_transaction_s"] = round(stage.watch.oldest_s, 1)
            line["looked"] = stage.watch.looked
    return line
