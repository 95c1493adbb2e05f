"""Retention, by time and by size, that deletes records which the query has not read."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from faults.cells.logs import GOES_ON, configure, losses_said
from faults.cells.registry import OPERATOR, Cell, add
from faults.evidence import GROUPKAFKA, TP
from faults.running import Query
from faults.scene import Scene

EXPIRED = re.compile(
    r"(?P<topic>[\w-]+)-(?P<p>\d+): .*?(?:records of offsets|skipping) (?P<first>\d+) to (?P<last>\d+)"
)
UNREAD = 300
"""Records of each partition that retention deletes, at least."""
OFTEN = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}


def in_small_segments(scene: Scene) -> None:
    """A segment file for each second, so that retention has files to delete."""
    configure(scene, segment_ms="1000")


def firsts(scene: Scene) -> dict[TP, int]:
    """The first offsets of the logs."""
    consumer = KafkaConsumer(bootstrap_servers=scene.kafka.bootstrap_servers)
    try:
        found = consumer.beginning_offsets([TopicPartition(scene.topic, p) for p in range(scene.topics[scene.topic])])
        return {(tp.topic, tp.partition): offset for tp, offset in found.items()}
    finally:
        consumer.close()


def expire(scene: Scene, beyond: dict[TP, int]) -> dict[TP, int]:
    """Wait until retention has deleted records up to these offsets, then end it; returns the first that stay."""
    scene.wait(lambda: all(first >= beyond[tp] for tp, first in firsts(scene).items()), every=0.3)
    configure(scene, retention_ms="-1", retention_bytes="-1")
    seen: list[dict[TP, int]] = []

    def at_rest() -> bool:
        seen.append(firsts(scene))
        return len(seen) > 3 and seen[-4] == seen[-1]

    scene.wait(at_rest, every=0.5)  # a check may have been under way
    return seen[-1]


def expired_as_said(query: Query) -> dict[TP, set[int]]:
    """Offsets that the query says it has passed over."""
    said: dict[TP, set[int]] = {}
    for line in losses_said(query):
        if found := EXPIRED.search(line):
            offsets = range(int(found["first"]), int(found["last"]) + 1)
            said.setdefault((found["topic"], int(found["p"])), set()).update(offsets)
    return said


def as_runs(offsets: set[int]) -> Iterator[tuple[int, int]]:
    """Starts and ends, exclusive, of offsets that follow each other."""
    for start in sorted(offset for offset in offsets if offset - 1 not in offsets):
        end = start
        while end in offsets:
            end += 1
        yield start, end


def expires_meanwhile(name: str, what: str, **retention: str) -> Cell:
    """A cell: the query is stopped, and retention deletes records that it has not read."""

    def happen(scene: Scene) -> None:
        query = scene.query
        with scene.fault(what):
            scene.left += query.stop()
            before = scene.ended()
            scene.wait(lambda: all(end >= before.get(tp, 0) + 2 * UNREAD for tp, end in scene.ends().items()))
            configure(scene, **retention)
            first = expire(scene, {tp: at + UNREAD for tp, at in before.items()})
            scene.removed += [(*tp, at, first[tp]) for tp, at in before.items()]
            query.start()
        scene.wait(lambda: all(scene.ended()[tp] >= offset for tp, offset in first.items()))
        passed_over = expired_as_said(query)
        for tp, at in before.items() if scene.source == GROUPKAFKA else ():
            said = {offset for offset in passed_over.get(tp, ()) if offset >= at}
            if said != set(range(at, first[tp])):
                scene.problems.append(f"{tp}: {at} to {first[tp] - 1} were deleted, it said {list(as_runs(said))}")

    return Cell(OPERATOR, name, what, happen, properties=OFTEN, prepare=in_small_segments, options=GOES_ON)


add(
    expires_meanwhile(
        "retention-by-time",
        "retention.ms deletes records that are not read, while the query is stopped; failOnDataLoss=false",
        retention_ms="1000",
    )
)
add(
    expires_meanwhile(
        "retention-by-size",
        "retention.bytes deletes records that are not read, while the query is stopped; failOnDataLoss=false",
        retention_bytes="20000",
    )
)


def retention_overtakes(scene: Scene) -> None:
    """The query falls behind, and reads on while retention deletes what it has not read."""
    query = scene.query
    scene.pause()
    with scene.fault("SIGSTOP of the program, then retention deletes while it goes on"):
        query.program.signal_all(signal.SIGSTOP)
        before = scene.ended()
        planned = before | {tp: end for batch in query.checkpoint.batches() for tp, end in batch.ends.items()}
        scene.wait(lambda: all(end >= planned.get(tp, 0) + 4 * UNREAD for tp, end in scene.ends().items()))
        configure(scene, retention_ms=str(scene.rng.randrange(1000, 3000)))
        scene.pause()
        query.program.signal_all(signal.SIGCONT)
        first = expire(scene, {tp: at + UNREAD for tp, at in planned.items()})
    scene.wait(lambda: all(scene.ended()[tp] >= offset for tp, offset in first.items()))
    if scene.source == GROUPKAFKA:  # each record is in the sink, or the query has said that it was gone
        for tp, offsets in expired_as_said(query).items():
            runs = as_runs({offset for offset in offsets if offset < first[tp]})
            scene.removed += [(*tp, start, end) for start, end in runs]
    else:
        scene.removed += [(*tp, at, first[tp]) for tp, at in before.items()]


add(
    Cell(
        OPERATOR,
        "retention-overtakes",
        "the program is paused and falls behind; it reads on while retention deletes what it has not read; "
        "failOnDataLoss=false",
        retention_overtakes,
        properties=OFTEN,
        prepare=in_small_segments,
        options=GOES_ON,
    )
)
