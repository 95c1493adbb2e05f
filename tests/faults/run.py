"""Runs cells, one after the other or several at a time, and keeps a line of JSON for each run."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from connector import connector_jars

from faults import ROOT
from faults.cells.registry import CELLS, Cell
from faults.evidence import IN_TRANSACTIONS, KAFKA, TOPIC, Finding, Observed
from faults.gather import gathered
from faults.judge import judged
from faults.lines import RESULTS, counts, file_of, gap, lines_of
from faults.load import Load, TransactionalLoad
from faults.scene import Scene
from spark_kafka_group.testing import KafkaCluster

RUNS = ROOT / ".faults"


def play(cell: Cell, source: str, seed: int, count: int, directory: Path) -> dict[str, Any]:
    """One run: the fault `count` times. Returns its line."""
    if cell.own is not None:
        return cell.own(cell, seed, count, directory, None)
    began = time.monotonic()
    scene = None
    with contextlib.ExitStack() as stack:
        try:
            made = cell.brokers or (lambda: KafkaCluster(cell.nodes, properties=cell.properties))
            kafka: KafkaCluster = stack.enter_context(made())
            topic = kafka.create_topic(
                f"faults-{uuid.uuid4().hex[:8]}", partitions=cell.partitions, replication=cell.replication
            )
            scene = Scene(kafka, directory, source, seed, topic, cell.partitions, cell.session_s)
            stack.callback(scene.close)
            if cell.prepare is not None:
                cell.prepare(scene)
            if cell.sink in (TOPIC, *IN_TRANSACTIONS):
                output = kafka.create_topic(f"{topic}-output", partitions=3, replication=cell.replication)
                scene.written_to(output, 3, once=cell.sink in IN_TRANSACTIONS)
            jars = ("--jars", ",".join(map(str, connector_jars()))) if source == KAFKA else ()
            scene.add_query(cell.options, cell.sink, *cell.arguments, *jars)
            scene.begin(load_of(cell, scene, seed))
            for _ in range(count):
                cell.happen(scene)
            scene.rest(cell.at_rest)
            scene.end()
            run = gathered(scene, cell.sink)
            findings = [found for found in judged(run) if found.invariant not in cell.exempt]
        except Exception as error:  # noqa: BLE001 - it is the finding of this run
            (directory / "error").write_text(traceback.format_exc())
            run = Observed(source, cell.sink, faults=() if scene is None else tuple(scene.faults))
            findings = [Finding("run", f"{type(error).__name__}: {str(error)[:600]}")]
    line = summary(cell, source, seed, run, findings) | {"seconds": round(time.monotonic() - began)}
    if scene is not None and scene.kinds:
        line |= {"kinds": dict(sorted(scene.kinds.items())), "at_once": scene.at_once}
    (directory / "result.json").write_text(json.dumps(line, indent=1))
    return line


def load_of(cell: Cell, scene: Scene, seed: int) -> Load:
    """The producers of a run, in transactions if the cell says how many are to be aborted."""
    arguments = scene.kafka.bootstrap_servers, scene.topics, cell.per_second
    return (
        TransactionalLoad(*arguments, seed=seed, **cell.load)
        if "aborts" in cell.load
        else Load(*arguments, **cell.load)
    )


def summary(cell: Cell, source: str, seed: int, run: Observed, findings: list[Finding]) -> dict[str, Any]:
    """What a run counted."""
    kinds = Counter(found.invariant for found in findings)
    values = Counter(row.value for row in run.rows)
    return {
        "cell": cell.name,
        "source": source,
        "seed": seed,
        "faults": len(run.faults),
        "records": len(run.acknowledged),
        "aborted": sum(acknowledged.identity in run.aborted for acknowledged in run.acknowledged),
        "rows": len(run.rows) + len(run.dead),
        "lost": sum(found.records for found in findings if found.invariant == "nothing missing"),
        "twice": sum(count - 1 for value, count in values.items() if value not in run.again),
        "batches": sum(batch.done_ms is not None for batch in run.batches),
        "generations": len({stored.generation for stored in run.stored if stored.generation is not None}),
        "commits": sum(stored.offset is not None for stored in run.stored),
        "restarts": sum(not ending.how.startswith(("killed", "stopped", "replaced")) for ending in run.endings),
        "gaps": [gap(fault) for fault in run.faults],
        "violations": dict(kinds),
        "findings": [asdict(found) for found in findings][:40],
    }


# Several


def code_version() -> str:
    """Of the package: git's name of its tree."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD:spark_kafka_group"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def run_cells(
    names: list[str], sources: list[str], counts: Mapping[str, int | None], seed: int | None, fresh: bool
) -> int:
    """Run cells until each has its count, its own one if none is given; returns the number of runs with findings."""
    failed = 0
    for name in names:
        for source in CELLS[name].sources:
            if source in sources:
                failed += run_cell(CELLS[name], source, counts.get(name) or CELLS[name].count, seed, fresh)
    return failed


def run_cell(
    cell: Cell, source: str, count: int, seed: int | None, fresh: bool, results: Path = RESULTS, runs: Path = RUNS
) -> int:
    """Run a cell until it has its count of faults that count, or were made with this package. All runs stay in its
    results."""
    version = code_version()
    lines = [] if fresh else lines_of(cell.name, source, results)
    counted = [line for line in lines if counts(line, source) or line["code"] == version]
    failed = 0
    while (missing := count - sum(line["faults"] for line in counted)) > 0:
        given = random.randrange(2**31) if seed is None else seed + len(lines)
        directory = runs / f"{cell.name}-{source}-{given}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        print(f"{cell.name}, {source}, seed {given}, in {directory}", flush=True)
        try:
            line = play(cell, source, given, min(missing, cell.at_once), directory)
        except pytest.skip.Exception as reason:  # what hosts and disks need
            print(f"  not run: {reason}", flush=True)
            break
        line |= {"code": version, "date": time.strftime("%Y-%m-%d"), "family": cell.family, "wanted": cell.count}
        lines.append(line)
        counted.append(line)
        results.mkdir(exist_ok=True)
        unfinished = file_of(cell.name, source, results).with_suffix(".unfinished")
        unfinished.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.replace(unfinished, file_of(cell.name, source, results))
        tell(line)
        if line["violations"]:
            failed += 1
            if not line["faults"]:  # it would go on like this for ever
                break
        else:
            shutil.rmtree(directory)
    return failed


def tell(line: Mapping[str, Any]) -> None:
    """Print a run."""
    shown = {
        key: value
        for key, value in line.items()
        if key in ("faults", "records", "rows", "lost", "twice", "batches", "commits", "restarts", "seconds")
    }
    print("  " + ", ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
    worst = max((gap["progressed"] for gap in line["gaps"] if gap["progressed"] is not None), default=None)
    print(f"  1,000 records after {worst} s at most", flush=True)
    for found in line["findings"]:
        print(f"  violation: {found['invariant']}: {found['problem']}", flush=True)


# Several at a time

Command = Sequence[str]


def in_lanes(commands: Sequence[Command], lanes: int) -> int:
    """Run commands, so many at a time, in their order; prints what each says when it has ended.

    Returns how many have failed. Commands that run are ended when this is ended.
    """
    running: set[subprocess.Popen[str]] = set()
    failed: list[Command] = []
    ending = threading.Event()

    def one(command: Command) -> None:
        if ending.is_set():
            return
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            running.add(process)
            said, _ = process.communicate()
            running.discard(process)
        print(said, end="", flush=True)
        if process.returncode:
            failed.append(command)

    with ThreadPoolExecutor(lanes) as pool:
        try:
            list(pool.map(one, commands))
        except BaseException:
            ending.set()
            for process in list(running):
                process.terminate()
            raise
    return len(failed)


def command_of(cell: str, source: str, *more: str) -> Command:
    """Runs a cell with one source, and writes no report."""
    return [sys.executable, "-m", "faults", "--only", cell, "--source", source, "--no-report", *more]
