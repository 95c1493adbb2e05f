"""A librdkafka consumer of Kafka's newer group protocol (KIP-848) in a process of its own, like ``consumer.py``.

Its events have no generation: it has an epoch, which changes without a word to the program. SIGINT ends it between two
polls.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place

from faults.programs.consumer import arguments
from spark_kafka_group.driver.reporting.events import EventLog
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

NO_GENERATION = -1


class Assignment:
    """The partitions that the consumer owns, by its callbacks; each change is an event."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._owned: set[TopicPartition] = set()

    def assigned(self, consumer: Consumer, places: list[Place]) -> None:
        self._owned |= _ours(places)
        self._events.assigned(NO_GENERATION, self._owned)
        consumer.incremental_assign(places)

    def revoked(self, consumer: Consumer, places: list[Place]) -> None:
        self._owned -= _ours(places)
        if places:
            self._events.revoked(NO_GENERATION, _ours(places))
        consumer.incremental_unassign(places)

    def lost(self, consumer: Consumer, places: list[Place]) -> None:
        self._owned -= _ours(places)
        self._events.lost(NO_GENERATION, _ours(places))
        consumer.incremental_unassign(places)


def _ours(places: list[Place]) -> set[TopicPartition]:
    return {TopicPartition(place.topic, place.partition) for place in places}


def main() -> None:
    parser = arguments()
    parser.add_argument("--instance-id")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    ending = threading.Event()
    signal.signal(signal.SIGINT, lambda number, frame: ending.set())
    static = {} if args.instance_id is None else {"group.instance.id": args.instance_id}
    consumer = Consumer(
        {
            "bootstrap.servers": args.bootstrap_servers,
            "client.id": args.name,
            "group.id": args.group,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **static,
        }
    )
    events = EventLog(str(args.events), args.group, args.name)
    assignment = Assignment(events)
    consumer.subscribe(
        [args.topic], on_assign=assignment.assigned, on_revoke=assignment.revoked, on_lost=assignment.lost
    )
    batch = 0
    with args.rows.open("ab", buffering=0) as file:
        while not ending.is_set():
            polled = _records(consumer.consume(rng.choice([20, 500]), timeout=0.2))
            if not polled:
                continue
            ranges = [OffsetRange(tp, records[0][1], records[-1][1] + 1) for tp, records in polled.items()]
            events.planned(NO_GENERATION, batch, ranges, replay=False)
            rows = [row for records in polled.values() for row in records]
            file.write(json.dumps({"batch": batch, "rows": rows}).encode() + b"\n")
            os.fsync(file.fileno())
            ending.wait(rng.random() * args.batch_seconds / 4)
            sent = events.now()
            try:
                consumer.commit(offsets=[Place(*r.tp, r.end) for r in ranges], asynchronous=False)
            except KafkaException as error:
                print(f"not committed: {error}", flush=True)
            else:
                events.committed(NO_GENERATION, batch, {r.tp: r.end for r in ranges}, sent)
            batch += 1
    consumer.close()
    events.close(NO_GENERATION)


def _records(messages: list[Any]) -> dict[TopicPartition, list[tuple[int, int, str]]]:
    found: dict[TopicPartition, list[tuple[int, int, str]]] = {}
    for message in messages:
        if message.error() is not None:
            print(f"not read: {message.error()}", flush=True)
            continue
        row = (message.partition(), message.offset(), message.value().decode())
        found.setdefault(TopicPartition(message.topic(), message.partition()), []).append(row)
    return found


if __name__ == "__main__":
    main()
