"""Transactional producers for tests, and how far a log is written, or stable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from spark_kafka_group.testing import wait_until
from support import name, wait_for_markers


def log_end(kafka: Any, topic: str, isolation_level: str = "read_uncommitted", partition: int = 0) -> int:
    """Offset the next record will get; under read_committed, the last stable offset."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation_level)
    try:
        tp = TopicPartition(topic, partition)
        return int(consumer.end_offsets([tp])[tp])
    finally:
        consumer.close()


class Writer:
    """A transactional producer of values into one partition of a topic. A context manager.

    A transaction begins with the first write after the last one ended. Kafka writes its marker after commit and abort
    have returned, so these wait for the marker. No other producer may write meanwhile.
    """

    def __init__(self, kafka: Any, topic: str, **configs: Any) -> None:
        self._topic = topic
        self._consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
        # On a slow machine a transaction is not to be aborted for its age.
        always = {"bootstrap_servers": kafka.bootstrap_servers, "transaction_timeout_ms": 600_000}
        self.producer = KafkaProducer(transactional_id=name("writer"), **always, **configs)
        self.producer.init_transactions()
        self.open = False

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if self.open:
            self.producer.abort_transaction()
        self.producer.close()
        self._consumer.close()

    def write(self, *values: int) -> Writer:
        """Write values, all in one record batch if it has room; the log has them afterwards."""
        if not self.open:
            self.producer.begin_transaction()
            self.open = True
        sent = [self.producer.send(self._topic, partition=0, key=b"k", value=b"%d" % value) for value in values]
        self.producer.flush()
        for future in sent:
            future.get(timeout=30)
        return self

    def commit(self) -> None:
        """End the transaction, and wait for its marker."""
        self._end(self.producer.commit_transaction)

    def abort(self) -> None:
        """End the transaction, and wait for its marker."""
        self._end(self.producer.abort_transaction)

    def _end(self, end: Any) -> None:
        tp = TopicPartition(self._topic, 0)
        before = self._consumer.end_offsets([tp])
        end()
        self.open = False
        wait_until(lambda: self._consumer.end_offsets([tp]) != before, within=30)


def consumed(kafka: Any, topic: str, isolation_level: str) -> Sequence[tuple[int, bytes]]:
    """Offsets and values of partition 0 that kafka-python's consumer gets up to the end."""
    wait_for_markers(kafka)
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation_level)
    try:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        end, found = consumer.end_offsets([tp])[tp], []
        while consumer.position(tp) < end:
            found += [(r.offset, r.value) for records in consumer.poll(200).values() for r in records]
        return found
    finally:
        consumer.close()
