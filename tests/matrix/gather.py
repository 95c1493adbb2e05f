"""Collects what a run left behind: in the sink, the checkpoint, the event logs, the topics, and the group's offsets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import stored
from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from matrix.observed import Observed, Stored
from matrix.scene import Range, Scene
from matrix.sink import rows_in
from spark_kafka_group import consumer_protocol, offsets_topic
from spark_kafka_group.json_text import parsed
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.tools.event_logs import read_run


def gathered(scene: Scene, sink: str) -> Observed:
    """The evidence of a run that is at rest; its queries have ended."""
    assert scene.load is not None
    queries = scene.queries
    ours = scene.source == "groupkafka"
    log = records(scene.kafka, scene.topics)
    known = log | {(a.topic, a.partition, a.offset): a.identity for a in scene.load.acknowledged if a.offset >= 0}
    return Observed(
        source=scene.source,
        sink=sink,
        acknowledged=tuple(scene.load.acknowledged),
        log=log,
        rows=[row for number, query in enumerate(queries) for row in rows_in(query.directory / "out", number)],
        batches=[
            replace(batch, query=number) for number, query in enumerate(queries) for batch in query.checkpoint.batches()
        ],
        events=read_run(sorted(scene.directory.glob("*/events/*.jsonl"))).events,
        tasks=tasks_in(scene.directory) if len(queries) == len(scene.topics) == 1 else {},
        stored=group_records(scene.kafka, scene.group) if ours else (),
        committed=scene.committed() if ours else {},
        ended=scene.ended(),
        ends=scene.ends(),
        lag=scene.query.lag() if ours else None,  # at rest the first query is alone
        faults=tuple(scene.faults),
        endings=[ending for query in queries for ending in query.endings],
        delivered=[value for reader in scene.neighbours for value in reader.delivered()],
        in_doubt=frozenset(value for reader in scene.neighbours for value in reader.in_doubt()),
        removed=frozenset(scene.gone | within(known, scene.removed)),
        again=frozenset(within(known, scene.again)),
        aborted=frozenset(scene.aborted | scene.load.aborted),
        interrupted=frozenset(number for query in queries for number in query.interrupted),
        operated=scene.operated,
        left=tuple(scene.left),
        problems=tuple(scene.problems),
    )


def within(known: dict[tuple[str, int, int], str], ranges: list[Range]) -> set[str]:
    """Records in some ranges of offsets."""
    return {
        value for topic, p, start, end in ranges for at in range(start, end) if (value := known.get((topic, p, at)))
    }


def records(kafka: KafkaCluster, topics: dict[str, int]) -> dict[tuple[str, int, int], str]:
    """All records that the topics have, by Kafka's own word: also those of transactions that were aborted."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, enable_auto_commit=False)
    found = {}
    try:
        tps = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
        ends = consumer.end_offsets(tps)
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for tp, polled in consumer.poll(timeout_ms=500, max_records=10_000).items():
                found |= {(tp.topic, tp.partition, record.offset): record.value.decode() for record in polled}
    finally:
        consumer.close(autocommit=False)
    return found


def group_records(kafka: KafkaCluster, group: str) -> list[Stored]:
    """The group's generations and commits, in the order in which the coordinator stored them."""
    found = []
    for time_ms, entry in stored.entries(kafka, group):
        match entry:
            case offsets_topic.OffsetCommitted() if entry.group == group:
                note = parsed(entry.metadata) if entry.metadata.startswith("{") else None
                found.append(Stored(entry.commit_timestamp_ms, tp=tuple(entry.tp), offset=entry.offset, note=note))
            case offsets_topic.OffsetRemoved() if entry.group == group:
                found.append(Stored(time_ms, tp=tuple(entry.tp)))
            case offsets_topic.GroupGeneration() if entry.group == group:
                members = {
                    member.member_id: tuple(map(tuple, consumer_protocol.assignment_of(member.assignment)))
                    for member in entry.members
                }
                found.append(Stored(time_ms, generation=entry.generation, members=members))
    return found


def tasks_in(directory: Path) -> dict[int, list[list[list[object]]]]:
    """The tasks of each batch; of a batch that was planned again, those of the last plan."""
    found = {}
    for path in sorted(directory.glob("*/tasks/*.jsonl"), key=lambda path: int(path.stem.rpartition("-")[2])):
        for line in path.read_text().splitlines():
            planned = json.loads(line)
            found[planned["batch"]] = planned["tasks"]
    return found
