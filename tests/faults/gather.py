"""Collects what a run left behind: in the sink, the checkpoint, the event logs, the topics, and the group's offsets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from faults import stored
from faults.checkpoint import Batch, positions
from faults.judge.evidence import IN_TRANSACTIONS, PROCESSOR, TOPIC, Call, Dead, Observed, Plan, Row, Shown, Stored
from faults.programs.handling import DONE
from faults.running import Query
from faults.scene import Range, Scene
from faults.sink import row_of, rows_in
from faults.written import whole_lines
from spark_kafka_group.metrics.group_metrics import OBSERVED
from spark_kafka_group.offsets_topic import decoding
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.text.foreign_text import parsed
from spark_kafka_group.tools.event_logs import Event, merge, read_run
from spark_kafka_group.values.error_headers import ATTEMPTS

READ_WITHIN_S = 180.0


def gathered(scene: Scene, sink: str) -> Observed:
    """The evidence of a run that is at rest; its queries have ended."""
    assert scene.load is not None
    queries = scene.queries
    ours = scene.source == "groupkafka"
    isolation = "read_committed" if sink in IN_TRANSACTIONS else "read_uncommitted"
    log = records(scene.kafka, scene.read_topics, isolation)
    known = log | {(a.topic, a.partition, a.offset): a.identity for a in scene.load.acknowledged if a.offset >= 0}
    batches = [replace(batch, query=n) for n, query in enumerate(queries) for batch in query.checkpoint.batches()]
    calls = [call for query in queries for call in calls_in(query.directory / "handled", batches)]
    if sink in (TOPIC, *IN_TRANSACTIONS):
        rows = rows_of_topic(scene, batches, isolation)
    elif sink == PROCESSOR:
        rows = [call.row for call in calls if call.outcome == DONE]
    else:
        rows = [row for n, query in enumerate(queries) for row in rows_in(query.directory / "out", n)]
    return Observed(
        source=scene.source,
        sink=sink,
        acknowledged=tuple(scene.load.acknowledged),
        log=log,
        rows=rows,
        batches=batches,
        events=events_in(scene.directory, scene.real_ms),
        plans=plans_in(scene.directory),
        stored=group_records(scene.kafka, scene.group) if ours else (),
        committed=scene.committed() if ours else {},
        ended=scene.ended(),
        ends=scene.ends(),
        lag=scene.query.lag() if ours and scene.seen_at_rest else None,  # at rest the first query is alone
        shown=shown_by(scene.query, scene.seen_at_rest, len(queries) == 1, scene.seen_ms()) if ours else Shown(),
        calls=calls,
        dead=dead_letters(scene, isolation) if scene.dead_letters else (),
        delays=scene.delays,
        faults=tuple(scene.faults),
        endings=[ending for query in queries for ending in query.endings],
        delivered=[value for reader in scene.neighbours for value in reader.delivered()],
        in_doubt=frozenset(value for reader in scene.neighbours for value in reader.in_doubt()),
        removed=frozenset(scene.gone | scene.load.unknown | within(known, scene.removed)),
        again=frozenset(within(known, scene.again)),
        aborted=frozenset(scene.aborted | scene.load.aborted),
        interrupted=frozenset(number for query in queries for number in query.interrupted),
        operated=scene.operated,
        left=tuple(scene.left),
        problems=tuple(scene.problems),
    )


def events_in(directory: Path, real_ms: Callable[[float], float]) -> tuple[Event, ...]:
    """The events of all processes, merged by the time at which their clocks showed their times."""
    files = [read_run([path]).events for path in sorted(directory.glob("*/events/*.jsonl"))]
    return merge([[replace(event, time_ms=real_ms(event.time_ms)) for event in events] for events in files])


def within(known: dict[tuple[str, int, int], str], ranges: list[Range]) -> set[str]:
    """Records in some ranges of offsets."""
    return {
        value for topic, p, start, end in ranges for at in range(start, end) if (value := known.get((topic, p, at)))
    }


def calls_in(folder: Path, batches: Sequence[Batch]) -> list[Call]:
    """Calls of a handler, each with the batch whose ranges have its record; -1 if none has."""
    found = []
    for path in sorted(folder.glob("*.tsv")):
        for line in whole_lines(path):
            at_ms, outcome, timestamp, topic, partition, offset, value = line.split("\t")
            batch = batch_of(batches, (topic, int(partition)), int(offset))
            row = Row(batch, topic, int(partition), int(offset), value)
            found.append(Call(row, int(timestamp), float(at_ms), outcome))
    return found


def rows_of_topic(scene: Scene, batches: Sequence[Batch], isolation: str) -> list[Row]:
    """The rows that queries wrote to the output topic, as a consumer with this isolation level reads them."""

    def number_of(query: int, tp: tuple[str, int], offset: int) -> int:
        return batch_of([batch for batch in batches if batch.query == query], tp, offset)

    (output,) = scene.output.items()
    found = whole(scene.kafka, dict([output]), isolation_level=isolation)
    return [row_of(record.key.decode(), record.value.decode(), number_of) for record in found]


def batch_of(batches: Sequence[Batch], tp: tuple[str, int], offset: int) -> int:
    """The number of the batch that has a record; -1 for none."""
    for batch in batches:
        if tp in batch.ends and batch.starts[tp] <= offset < batch.ends[tp]:
            return batch.number
    return -1


def dead_letters(scene: Scene, isolation: str) -> list[Dead]:
    """The records of the dead-letter topic."""
    assert scene.dead_letters is not None
    found = []
    for record in whole(scene.kafka, {scene.dead_letters: scene.topics[scene.topic]}, isolation_level=isolation):
        (next_attempt,) = (value for name, value in record.headers if name == ATTEMPTS)
        found.append(Dead(record.value.decode(), int.from_bytes(next_attempt) - 2))
    return found


def shown_by(query: Query, at_rest: bool, alone: bool, until_ms: float) -> Shown:
    """What a query's progress shows; of its batches, if its sink has no rows of another query."""
    batches: dict[int, tuple[Mapping[tuple[str, int], int], int]] = {}
    handled = {}
    for progress in query.all_progress() if alone else ():
        if "addBatch" not in progress["durationMs"]:  # a trigger without a batch
            continue
        ends: dict[tuple[str, int], int] = {}
        for source in progress["sources"]:
            end = source["endOffset"]
            ends |= positions((json.loads(end) if isinstance(end, str) else end) or {})
        batches[progress["batchId"]] = ends, progress["numInputRows"]
        if (counts := progress.get("observedMetrics", {}).get(OBSERVED)) is not None:
            handled[progress["batchId"]] = counts
    return Shown(query.shown() if at_rest else (), query.began_ms, batches, handled, until_ms)


def records(
    kafka: KafkaCluster, topics: dict[str, int], isolation: str = "read_uncommitted"
) -> dict[tuple[str, int, int], str]:
    """All records that the topics have, by Kafka's own word: also those of transactions that were aborted."""
    found = whole(kafka, topics, isolation_level=isolation)
    return {(r.topic, r.partition, r.offset): r.value.decode() for r in found}


def whole(kafka: KafkaCluster, topics: Mapping[str, int], **settings: Any) -> Iterator[Any]:
    """Each record of topics with so many partitions, as kafka-python's consumer reads it.

    Raises
    ------
    TimeoutError
        Where the topics' ends are not reached.
    """
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, enable_auto_commit=False, **settings)
    try:
        tps = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
        ends = consumer.end_offsets(tps)
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        deadline = time.monotonic() + READ_WITHIN_S
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the topics were not read within {READ_WITHIN_S:.0f} s")
            for polled in consumer.poll(timeout_ms=500, max_records=10_000).values():
                yield from polled
    finally:
        consumer.close(autocommit=False)


def group_records(kafka: KafkaCluster, group: str) -> list[Stored]:
    """The group's generations and commits, in the order in which the coordinator stored them."""
    found = []
    for time_ms, entry in stored.entries(kafka, group):
        match entry:
            case decoding.CommitEntry() if entry.group == group:
                note = parsed(entry.metadata) if entry.metadata.startswith("{") else None
                found.append(Stored(entry.commit_timestamp_ms, tp=tuple(entry.tp), offset=entry.offset, note=note))
            case decoding.OffsetRemoved() if entry.group == group:
                found.append(Stored(time_ms, tp=tuple(entry.tp)))
            case decoding.GenerationEntry() if entry.group == group:
                members = {
                    member.member_id: tuple(map(tuple, decoding.assignment_of(member.assignment)))
                    for member in entry.members
                }
                found.append(Stored(time_ms, generation=entry.generation, members=members))
    return found


def plans_in(directory: Path) -> list[Plan]:
    """What each process has planned, in its order, without a plan that was cut off: Spark did not get it."""
    found = []
    for path in sorted(directory.glob("*/tasks/*.jsonl")):
        for line in map(json.loads, whole_lines(path)):
            found.append(Plan(path.stem, line["reader"], line["batch"], line["tasks"]))
    return found
