"""Queries that write in transactions, held up until brokers have aborted these: written again, or the tool mends it."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults import ROOT
from faults.cells.registry import Cell, add
from faults.cells.sinks import ENDS_SOON_S, SINK, program_killed
from faults.evidence import ABORT, COMMIT, GROUPKAFKA
from faults.once import shapes
from faults.once.play import begun, play, with_brokers
from faults.once.stage import ONCE, STANDS_WITHIN_S, PublishingQuery, Stage, sentence
from spark_kafka_group.testing import KafkaCluster, wait_until

LOST = re.compile(
    r"batch (\d+) of query \S+ was published in part: its transactions that wrote to ([^:]+) were aborted"
)
HELD_TIMEOUT_MS = 20_000
CHECKS_MS = 500
OF_FIVE = (shapes.MAP,) * 5


def held(stage: Stage, step: str, then: Callable[[Stage], None]) -> None:
    """All queries stand at a step, and are stopped there until brokers have aborted what is open."""
    assert stage.watch is not None
    for query in stage.queries:
        stage.arm(query, step)

    def all_stand() -> bool:
        stage.restart_ended(may_end=True)  # on a slow machine a batch may take longer than its transaction may be open
        return all(stage.stands(query, step) for query in stage.queries)

    stage.wait_for(all_stand, STANDS_WITHIN_S)
    stage.program.signal_all(signal.SIGSTOP)
    wait_until(lambda: not stage.watch.open_now(), within=60, every=0.5)
    then(stage)


def goes_on(stage: Stage) -> None:
    """The same processes go on."""
    stage.program.signal_all(signal.SIGCONT)
    stage.disarm(stage.name)


def none_committed(stage: Stage) -> None:
    """In turns the same program goes on, or another one is started."""
    then, how = ((goes_on, "SIGCONT"), (program_killed, "SIGKILL and a start"))[len(stage.faults) % 2]
    stage.fault(
        f"SIGSTOP behind the decision for longer than transactions may be open, then {how}",
        lambda: held(stage, "decided", then), [how] * len(stage.queries), may_end=True,
    )  # fmt: skip


def some_committed(stage: Stage) -> None:
    """The query stops, and stops again at each start, until the tool was told what is to become of the batch."""

    def mended(stage: Stage) -> None:
        goes_on(stage)
        wait_until(lambda: all(len(q.endings()) > q.seen for q in stage.queries), within=ENDS_SOON_S)
        stage.restart_ended(may_end=True)  # and the next start finds the same
        wait_until(lambda: all(len(q.endings()) > q.seen for q in stage.queries), within=ENDS_SOON_S)
        for number, query in enumerate(stage.queries):
            mend(stage, query, (COMMIT, ABORT)[(number + len(stage.faults)) % 2])

    stage.fault(
        "SIGSTOP between two EndTxn for longer than transactions may be open, then SIGCONT, and the tool",
        lambda: held(stage, "half-ended", mended), ["half-ended"] * len(stage.queries), may_end=True,
    )  # fmt: skip


def mend(stage: Stage, query: PublishingQuery, choice: str) -> None:
    """Have the tool end the batch that was lost in part, which the query's error names with its partitions."""
    said = sentence(query.endings()[-1]["error"])
    found = LOST.search(said)
    if found is None or f"{query.output}-" not in found[2]:
        stage.problems.append(f"{query.name} ended, and not as lost in part, with its partitions: {said[:300]}")
        return
    done = subprocess.run(
        [
            sys.executable, "-m", "spark_kafka_group", "transactions", "--bootstrap-server",
            stage.kafka.bootstrap_servers, "--transactional-id", query.prefix, choice, "--execute",
        ],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if done.returncode:
        stage.problems.append(f"the tool ended with {done.returncode}: {done.stderr[-300:]}")
    stage.mended.append((query.name, int(found[1]), choice))


def held_cell(name: str, what: str, happen: Callable[[Stage], None]) -> None:
    """A cell: five queries at a time are held up."""

    def own(cell: Cell, seed: int, count: int, directory: Path, kafka: KafkaCluster | None) -> dict[str, Any]:
        make = functools.partial(begun, of_shapes=OF_FIVE, guarantee=ONCE, session_s=45.0, timeout_ms=HELD_TIMEOUT_MS)
        return with_brokers(
            cell, None, lambda found: play(make, happen, cell.name, seed, count, directory, found, len(OF_FIVE))
        )

    add(
        Cell(
            SINK, name, what, happen, sources=(GROUPKAFKA,), own=own, at_once=10,
            properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(CHECKS_MS)},
        )
    )  # fmt: skip


held_cell(
    "sink-held-decided-once",
    "SIGSTOP of a program behind the decision until brokers have aborted all transactions: written again",
    none_committed,
)
held_cell(
    "sink-held-half-ended-once",
    "SIGSTOP between two EndTxn until brokers have aborted the other one: the query stops, and the tool mends it",
    some_committed,
)
