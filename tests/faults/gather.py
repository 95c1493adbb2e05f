"""Collects what a run left behind: in sinks, checkpoints, event logs, topics, and the group's offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from faults.checkpoint import Checkpoint, furthest, positions
from faults.evidence import (
    GROUPKAFKA,
    IN_TRANSACTIONS,
    PROCESSOR,
    TOPIC,
    Batch,
    Call,
    Dead,
    Observed,
    Plan,
    Row,
    Shown,
)
from faults.processes import whole_lines
from faults.programs.handling import DONE
from faults.running import Query
from faults.scene import Range, Scene
from faults.topics import ends_of, group_records, records, whole
from spark_kafka_group.metrics.group_metrics import OBSERVED
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.tools.event_logs import Event, merge, read_run
from spark_kafka_group.values.error_headers import ATTEMPTS

SINK_LOG = "_spark_metadata"


def left_in(
    directories: Sequence[Path], sink: str, source: str = GROUPKAFKA, real_ms: Callable[[float], float] = float
) -> Observed:
    """What queries have left in a folder each: checkpoints, sinks, event logs, and plans of tasks.

    Parameters
    ----------
    real_ms
        The time at which the clock of the queries' processes showed this one.
    """
    checkpoints = [Checkpoint(directory / "checkpoint", {}) for directory in directories]
    return Observed(
        source,
        sink,
        rows=[row for n, directory in enumerate(directories) for row in rows_in(directory / "out", n)],
        batches=[replace(batch, query=n) for n, one in enumerate(checkpoints) for batch in one.batches()],
        events=events_in(directories, real_ms),
        plans=[plan for directory in directories for plan in plans_in(directory)],
        ended=furthest(checkpoints),
    )


def left(kafka: KafkaCluster, topics: Mapping[str, int], group: str, *directories: Path) -> Observed:
    """What queries of a test have left, that have read all of some topics, each with a sink that is written over."""
    return replace(
        left_in(directories, "overwrite"),
        log=records(kafka, topics),
        stored=group_records(kafka, group),
        committed={tp: offset for tp, (offset, _) in kafka.committed(group).items()},
        ends=ends_of(kafka, topics),
    )


def gathered(scene: Scene, sink: str) -> Observed:
    """The evidence of a run that is at rest; its queries have ended."""
    assert scene.load is not None
    queries = scene.queries
    ours = scene.source == GROUPKAFKA
    isolation = "read_committed" if sink in IN_TRANSACTIONS else "read_uncommitted"
    log = records(scene.kafka, scene.read_topics, isolation)
    known = log | {(a.topic, a.partition, a.offset): a.identity for a in scene.load.acknowledged if a.offset >= 0}
    found = left_in([query.directory for query in queries], sink, scene.source, scene.real_ms)
    calls = [call for query in queries for call in calls_in(query.directory / "handled", found.batches)]
    if sink in (TOPIC, *IN_TRANSACTIONS):
        found = replace(found, rows=rows_of_topic(scene, found.batches, isolation))
    elif sink == PROCESSOR:
        found = replace(found, rows=[call.row for call in calls if call.outcome == DONE])
    return replace(
        found,
        acknowledged=tuple(scene.load.acknowledged),
        log=log,
        stored=group_records(scene.kafka, scene.group) if ours else (),
        committed=scene.committed() if ours else {},
        ends=scene.ends(),
        lag=scene.query.lag() if ours and scene.seen_at_rest else None,  # at rest the first query is alone
        shown=shown_by(scene.query, scene.seen_at_rest, len(queries) == 1, scene.seen_ms()) if ours else Shown(),
        calls=calls,
        dead=dead_letters(scene, isolation) if scene.dead_letters else (),
        delays=scene.delays,
        faults=tuple(scene.faults),
        endings=[ending for query in queries for ending in query.endings],
        delivered=[value for reader in scene.neighbours for _, value in reader.delivered()],
        in_doubt=frozenset(value for reader in scene.neighbours for _, value in reader.in_doubt()),
        removed=frozenset(scene.gone | scene.load.unknown | within(known, scene.removed)),
        again=frozenset(within(known, scene.again)),
        aborted=frozenset(scene.aborted | scene.load.aborted),
        interrupted=frozenset(number for query in queries for number in query.interrupted),
        operated=scene.operated,
        left=tuple(scene.left),
        problems=tuple(scene.problems),
    )


def events_in(directories: Sequence[Path], real_ms: Callable[[float], float]) -> tuple[Event, ...]:
    """The events of all processes, merged by the time at which their clocks showed their times."""
    paths = sorted(path for directory in directories for path in directory.glob("events/*.jsonl"))
    files = [read_run([path]).events for path in paths]
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


def plans_in(directory: Path) -> list[Plan]:
    """What each process has planned, in its order, without a plan that was cut off: Spark did not get it."""
    found = []
    for path in sorted(directory.glob("tasks/*.jsonl")):
        for line in map(json.loads, whole_lines(path)):
            found.append(Plan(path.stem, line["reader"], line["batch"], line["tasks"]))
    return found


# Sinks


def rows_in(out: Path, query: int = 0) -> list[Row]:
    """All rows that a reader of the sink sees: of Spark's file sink, those of the files that its log has."""
    files = files_of_log(out) if (out / SINK_LOG).exists() else files_by_batch(out)
    found = []
    for batch, file in files:
        columns = pq.ParquetFile(file).read(["topic", "partition", "offset", "value"]).to_pydict()
        found += [Row(batch, *row, query) for row in zip(*columns.values(), strict=True)]
    for path in out.glob("[0-9]*"):  # of a query without Spark
        found += [Row(int(path.name), *row, query) for row in json.loads(path.read_text())]
    return found


def files_of_log(out: Path) -> Iterator[tuple[int, Path]]:
    """Files that are in the file sink's log, each with its batch."""
    seen: set[str] = set()
    for path in sorted((p for p in (out / SINK_LOG).iterdir() if p.name.split(".")[0].isdecimal()), key=_number):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry["action"] == "add" and entry["path"] not in seen:  # a compacted log repeats all before it
                seen.add(entry["path"])
                yield _number(path), Path(unquote(urlparse(entry["path"]).path))


def files_by_batch(out: Path) -> Iterator[tuple[int, Path]]:
    """Files in a folder for each batch, of jobs that have succeeded."""
    for folder in out.glob("batch=*"):
        if (folder / "_SUCCESS").exists():
            yield from ((int(folder.name.partition("=")[2]), file) for file in folder.glob("*.parquet"))


def row_of(key: str, value: str, batch_of: Callable[[int, tuple[str, int], int], int]) -> Row:
    """The row that a record of an output topic is, by its key and its value."""
    query, topic, partition, offset = key.split(" ")
    number, place = int(query.removeprefix("query")), (topic, int(partition))
    return Row(batch_of(number, place, int(offset)), *place, int(offset), value, number)


def _number(path: Path) -> int:
    return int(path.name.split(".")[0])
