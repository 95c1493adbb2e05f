"""A kafka-python consumer in a process of its own, which writes down what it reads, and events as a query's event log.

Rows are on disk before their offsets are committed. SIGINT ends it between two polls.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import OffsetAndMetadata

from spark_kafka_group.driver.reporting.events import EventLog
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
COMMIT_WITHIN_S = 5.0


def ours(tps: Any) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(tp.topic, tp.partition) for tp in tps)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Writes rebalances down, under the generation that the coordinator is in when it calls."""

    def __init__(self, consumer: KafkaConsumer, events: EventLog) -> None:
        self._consumer = consumer
        self._events = events
        self.generation = -1  # of the last assignment, which is that of all reads until the next one

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self._events.revoked(self.generation, ours(revoked))

    def on_partitions_lost(self, lost: Any) -> None:
        self._events.lost(self.generation, ours(lost))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.generation = self._consumer._coordinator._generation.generation_id
        self._events.assigned(self.generation, ours(self._consumer.assignment()))


def committed(consumer: KafkaConsumer, offsets: dict[Any, int]) -> bool:
    """Commit; a synchronous commit would not end in a rebalance."""
    future = consumer.commit_async({tp: OffsetAndMetadata(offset, "", -1) for tp, offset in offsets.items()})
    deadline = time.monotonic() + COMMIT_WITHIN_S
    while not future.is_done and time.monotonic() < deadline:
        threading.Event().wait(0.005)
    return bool(future.is_done and future.succeeded())


def arguments() -> argparse.ArgumentParser:
    """Those of each program that is a consumer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True, help="client id, and member in the events")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--batch-seconds", type=float, required=True)
    return parser


def main() -> None:
    parser = arguments()
    parser.add_argument("--strategy", choices=ASSIGNORS, required=True)
    parser.add_argument("--session-timeout-ms", type=int, required=True)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    ending = threading.Event()
    signal.signal(signal.SIGINT, lambda number, frame: ending.set())
    consumer = KafkaConsumer(
        bootstrap_servers=args.bootstrap_servers,
        client_id=args.name,
        group_id=args.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=args.session_timeout_ms,
        heartbeat_interval_ms=args.session_timeout_ms // 10,
        max_poll_interval_ms=30_000,
        partition_assignment_strategy=[ASSIGNORS[args.strategy]],
    )
    events = EventLog(str(args.events), args.group, args.name)
    listener = Listener(consumer, events)
    consumer.subscribe([args.topic], listener=listener)
    batch = 0
    with args.rows.open("ab", buffering=0) as file:
        while not ending.is_set():
            polled = consumer.poll(timeout_ms=1000, max_records=rng.choice([20, 500]))
            if not polled:
                continue
            ranges = [
                OffsetRange(TopicPartition(tp.topic, tp.partition), records[0].offset, records[-1].offset + 1)
                for tp, records in polled.items()
            ]
            events.planned(listener.generation, batch, ranges, replay=False)
            rows = [(r.partition, r.offset, r.value.decode()) for records in polled.values() for r in records]
            file.write(json.dumps({"batch": batch, "rows": rows}).encode() + b"\n")
            os.fsync(file.fileno())
            ending.wait(rng.random() * args.batch_seconds / 4)
            sent = events.now()
            if committed(consumer, {tp: records[-1].offset + 1 for tp, records in polled.items()}):
                events.committed(listener.generation, batch, {r.tp: r.end for r in ranges}, sent)
            batch += 1
    consumer.close(autocommit=False)
    events.close(listener.generation)


if __name__ == "__main__":
    main()
