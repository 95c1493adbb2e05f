"""A consumer of a group that is no query: kafka-python's, confluent-kafka's or aiokafka's. SIGTERM ends it in order.

It prints what Kafka's own VerifiableConsumer prints: a line of JSON for each record, poll, commit and assignment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

COMMIT_WITHIN_MS = 5_000
Row = tuple[str, int, int, bytes]
"""Topic, partition, offset and value."""

ending = threading.Event()


def say(name: str, **more: object) -> None:
    sys.stdout.write(json.dumps({"timestamp": time.time() * 1000, "name": name} | more) + "\n")
    sys.stdout.flush()


def place(topic: str, partition: int, **more: object) -> dict[str, object]:
    return {"topic": topic, "partition": partition} | more


def say_partitions(name: str, tps: Iterable[Any]) -> None:
    say(name, partitions=[place(tp.topic, tp.partition) for tp in tps])


def say_read(rows: Sequence[Row]) -> dict[tuple[str, int], int]:
    """Say what a poll has brought; returns where to go on."""
    ranges: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset, value in rows:
        say("record_data", key=None, value=value.decode(), **place(topic, partition, offset=offset))
        ranges.setdefault((topic, partition), []).append(offset)
    polled = [
        place(*tp, count=len(offsets), minOffset=offsets[0], maxOffset=offsets[-1]) for tp, offsets in ranges.items()
    ]
    say("records_consumed", count=len(rows), partitions=polled)
    return {tp: offsets[-1] + 1 for tp, offsets in ranges.items()}


def say_committed(ends: Mapping[tuple[str, int], int], error: Exception | None = None) -> None:
    offsets = [place(*tp, offset=end) for tp, end in ends.items()]
    say("offsets_committed", success=error is None, offsets=offsets, **({} if error is None else {"error": str(error)}))


class Pace:
    """How many records a poll brings at most, and how long they take; drawn if there is a seed."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._rng = None if args.seed is None else random.Random(args.seed)
        self._most_s = args.batch_seconds / 4

    def most(self) -> int:
        return 200 if self._rng is None else self._rng.choice([20, 500])

    def pause(self) -> None:
        if self._rng is not None:
            ending.wait(self._rng.random() * self._most_s)


def kafka_python(args: argparse.Namespace, pace: Pace) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata, TopicPartition

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say_partitions("partitions_revoked", revoked)

        def on_partitions_lost(self, lost: Any) -> None:
            say_partitions("partitions_lost", lost)

        def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("partitions_assigned", consumer.assignment())

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=args.servers, client_id=args.name, group_id=args.group, enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=args.session_ms, heartbeat_interval_ms=args.session_ms // 10,
        max_poll_interval_ms=30_000, partition_assignment_strategy=[assignors[args.strategy]],
    )  # fmt: skip
    consumer.subscribe([args.topic], listener=Listener())
    while not ending.is_set():
        polled = consumer.poll(timeout_ms=200, max_records=pace.most())
        if polled:
            ends = say_read([(r.topic, r.partition, r.offset, r.value) for some in polled.values() for r in some])
            pace.pause()
            offsets = {TopicPartition(*tp): OffsetAndMetadata(end, "", -1) for tp, end in ends.items()}
            try:
                consumer.commit(offsets, timeout_ms=COMMIT_WITHIN_MS)
            except KafkaError as error:
                say_committed(ends, error)
            else:
                say_committed(ends)
    consumer.close(autocommit=False)


def confluent(args: argparse.Namespace, pace: Pace) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings: dict[str, Any] = {
        "bootstrap.servers": args.servers, "group.id": args.group, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "client.id": args.name, "group.protocol": args.protocol,
    }  # fmt: skip
    if args.protocol == "classic":
        settings |= {
            "session.timeout.ms": args.session_ms, "heartbeat.interval.ms": args.session_ms // 10,
            "partition.assignment.strategy": "range,roundrobin",
        }  # fmt: skip
    if args.instance_id is not None:
        settings |= {"group.instance.id": args.instance_id}
    consumer = Consumer(settings)
    consumer.subscribe(
        [args.topic],
        on_assign=lambda _, tps: say_partitions("partitions_assigned", tps),
        on_revoke=lambda _, tps: say_partitions("partitions_revoked", tps),
        on_lost=lambda _, tps: say_partitions("partitions_lost", tps),
    )
    while not ending.is_set():
        records = [record for record in consumer.consume(pace.most(), timeout=0.2) if record.error() is None]
        if records:
            ends = say_read([(r.topic(), r.partition(), r.offset(), r.value()) for r in records])
            pace.pause()
            try:
                consumer.commit(offsets=[TopicPartition(*tp, end) for tp, end in ends.items()], asynchronous=False)
            except KafkaException as error:
                say_committed(ends, error)
            else:
                say_committed(ends)
    consumer.close()


def aiokafka(args: argparse.Namespace, pace: Pace) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say_partitions("partitions_revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("partitions_assigned", assigned)

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=args.servers, group_id=args.group, enable_auto_commit=False, client_id=args.name,
            auto_offset_reset="earliest", session_timeout_ms=args.session_ms,
            heartbeat_interval_ms=args.session_ms // 10,
            # its own default is round robin alone, which a query does not have by default
            partition_assignment_strategy=[RangePartitionAssignor],
        )  # fmt: skip
        consumer.subscribe([args.topic], listener=Listener())
        await consumer.start()
        while not ending.is_set():
            polled = await consumer.getmany(timeout_ms=200, max_records=pace.most())
            if polled:
                ends = say_read([(r.topic, r.partition, r.offset, r.value) for some in polled.values() for r in some])
                try:
                    await consumer.commit({TopicPartition(*tp): end for tp, end in ends.items()})
                except KafkaError as error:
                    say_committed(ends, error)
                else:
                    say_committed(ends)
        await consumer.stop()

    asyncio.run(consume())


CLIENTS = {"kafka-python": kafka_python, "confluent-kafka": confluent, "aiokafka": aiokafka}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS, required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--session-ms", type=int, required=True)
    parser.add_argument("--name", default="neighbour", help="the client id")
    parser.add_argument("--strategy", default="range", help="of kafka-python")
    parser.add_argument("--protocol", default="classic", help="of confluent-kafka; consumer is KIP-848")
    parser.add_argument("--instance-id", help="of a static member, of confluent-kafka")
    parser.add_argument("--seed", type=int, help="draws how many records a poll brings, and a pause before the commit")
    parser.add_argument("--batch-seconds", type=float, default=0.0)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: ending.set())
    say("startup_complete")
    CLIENTS[args.client](args, Pace(args))
    say("shutdown_complete")


if __name__ == "__main__":
    main()
