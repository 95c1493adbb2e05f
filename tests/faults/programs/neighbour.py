"""A consumer of the group that is no query: kafka-python's, confluent-kafka's or aiokafka's. SIGTERM ends it in order.

It prints a line of JSON for the values of each poll, and another one when their offsets are committed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import threading

ending = threading.Event()


def said(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def kafka_python(args: argparse.Namespace) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        args.topic, bootstrap_servers=args.servers, group_id=args.group, enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=args.session_ms, client_id="neighbour",
        heartbeat_interval_ms=args.session_ms // 10,
    )  # fmt: skip
    while not ending.is_set():
        polled = consumer.poll(timeout_ms=200, max_records=200)
        if polled:
            said(read=[record.value.decode() for records in polled.values() for record in records])
            try:
                consumer.commit(timeout_ms=5_000)
            except KafkaError as error:
                said(failed=str(error))
            else:
                said(committed=True)
    consumer.close(autocommit=False)


def confluent(args: argparse.Namespace) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": args.servers, "group.id": args.group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": args.session_ms, "client.id": "neighbour",
            "heartbeat.interval.ms": args.session_ms // 10, "partition.assignment.strategy": "range,roundrobin",
        }
    )  # fmt: skip
    consumer.subscribe([args.topic])
    while not ending.is_set():
        records = [record for record in consumer.consume(200, timeout=0.2) if record.error() is None]
        if records:
            said(read=[record.value().decode() for record in records])
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                said(failed=str(error))
            else:
                said(committed=True)
    consumer.close()


def aiokafka(args: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            args.topic, bootstrap_servers=args.servers, group_id=args.group, enable_auto_commit=False,
            auto_offset_reset="earliest", session_timeout_ms=args.session_ms, client_id="neighbour",
            heartbeat_interval_ms=args.session_ms // 10,
            # its own default is round robin alone, which a query does not have by default
            partition_assignment_strategy=[RangePartitionAssignor],
        )  # fmt: skip
        await consumer.start()
        while not ending.is_set():
            polled = await consumer.getmany(timeout_ms=200, max_records=200)
            if polled:
                said(read=[record.value.decode() for records in polled.values() for record in records])
                try:
                    await consumer.commit()
                except KafkaError as error:
                    said(failed=str(error))
                else:
                    said(committed=True)
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
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: ending.set())
    CLIENTS[args.client](args)


if __name__ == "__main__":
    main()
