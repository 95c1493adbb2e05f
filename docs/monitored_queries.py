"""Queries to look at in Prometheus: two of one group, one with a handler that fails at times, and mishaps."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from kafka.structs import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_group import RecordProcessor
from spark_kafka_group.testing import KafkaCluster, wait_until

ORDERS, CLICKS = "orders", "clicks"
TOPICS = {ORDERS: 4, CLICKS: 2}
BILLING, SHOP = "billing", "shop"
DEAD_LETTERS = "dead-letters"
STEP_S = 300
EVERY = "500 milliseconds"
QUICK = {"kafka.request.timeout.ms": "4000", "kafka.default.api.timeout.ms": "5000"}
"""An outage is noticed after 5 s, not after a minute."""


class MonitoredQueries:
    """A context manager: topics, a producer for each, and queries that stop with it.

    ``orders`` and :meth:`second_member` read `ORDERS` as members of `BILLING`; ``clicks`` hands the records of `CLICKS`
    to a handler that fails for one in fifty.
    """

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, directory: Path) -> None:
        self._spark = spark
        self._kafka = kafka
        self._directory = directory
        self._ending = threading.Event()
        self._flowing = threading.Event()
        self._producing: list[threading.Thread] = []
        self.running: list[StreamingQuery] = []

    def __enter__(self) -> MonitoredQueries:
        self._kafka.create_topic(DEAD_LETTERS)
        for topic, partitions in TOPICS.items():
            self._kafka.create_topic(topic, partitions=partitions)
            producing = threading.Thread(target=self._produce, args=(topic, partitions), daemon=True)
            self._producing.append(producing)
        self._flowing.set()
        self._read("orders")
        self._handle("clicks")
        for producing in self._producing:
            producing.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        for query in self.running:
            query.stop()
        for producing in self._producing:
            producing.join()

    def second_member(self) -> StreamingQuery:
        """A query that joins `BILLING`; the caller stops it."""
        query = self._read("orders-2")
        wait_until(lambda: query.exception() or _rows(query), within=STEP_S)
        error = query.exception()
        if error is not None:
            raise error
        return query

    def lose_records(self) -> None:
        """Delete records of `ORDERS` that no query has read; ``failOnDataLoss`` is false."""
        partition = TopicPartition(ORDERS, 0)
        producer = KafkaProducer(bootstrap_servers=self._kafka.bootstrap_servers)
        for _ in range(60_000):
            producer.send(ORDERS, b"order", partition=0)
        producer.flush()
        producer.close()
        self._kafka.admin.delete_records({partition: -1})

    @contextlib.contextmanager
    def broker_away(self) -> Iterator[None]:
        """No broker in the block, which begins when queries are idle, and after which they read again.

        A task that reads waits for the broker, and reports nothing meanwhile: the query would not look away.
        """
        self._flowing.clear()
        wait_until(lambda: all(_rows(query) == 0 for query in self.running), within=STEP_S)
        self._kafka.node(0).stop()
        yield
        self._kafka.node(0).start()
        self._kafka.wait_until_ready()
        before = self._batches()
        self._flowing.set()
        wait_until(lambda: all(now > then for now, then in zip(self._batches(), before, strict=True)), within=STEP_S)

    def _batches(self) -> list[int]:
        return [progress["batchId"] for query in self.running if (progress := query.lastProgress)]

    def _options(self, topic: str, group: str) -> dict[str, str]:
        servers = {"kafka.bootstrap.servers": self._kafka.bootstrap_servers}
        return servers | QUICK | {"subscribe": topic, "kafka.group.id": group, "startingOffsets": "earliest"}

    def _stream(self, options: dict[str, str]) -> DataFrame:
        return self._spark.readStream.format("groupkafka").options(**options).load()

    def _read(self, name: str) -> StreamingQuery:
        goes_on = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "4000"}
        stream = self._stream(self._options(ORDERS, BILLING) | goes_on)
        writer = stream.writeStream.format("noop").queryName(name).trigger(processingTime=EVERY)
        query = writer.option("checkpointLocation", str(self._directory / name)).start()
        self.running.append(query)
        return query

    def _handle(self, name: str) -> None:
        def handle(record: Any) -> None:
            time.sleep(0.005)
            if int(record.value) % 50 == 0:
                raise ValueError("no such customer")

        options = self._options(CLICKS, SHOP) | {"includeHeaders": "true"}
        processor = RecordProcessor(handle, max_local_retries=0, dead_letter_topic=DEAD_LETTERS, options=options)
        checkpoint = str(self._directory / name)
        self.running.append(
            processor.start(self._stream(options), checkpoint, query_name=name, processingTime="1 second")
        )

    def _produce(self, topic: str, partitions: int) -> None:
        """Bursts of records; later partitions get fewer."""
        rng, number = random.Random(1), 0
        producer = KafkaProducer(bootstrap_servers=self._kafka.bootstrap_servers, linger_ms=20)
        weights = [1 / (1 + 2 * partition / partitions) for partition in range(partitions)]
        sizes = (100, 300, 900) if topic == ORDERS else (10, 20, 30)
        while not self._ending.wait(0.2):
            if not self._flowing.wait(0.2):
                continue
            for partition in rng.choices(range(partitions), weights, k=rng.choice(sizes)):
                producer.send(topic, b"%d" % number, partition=partition)
                number += 1
        producer.close()


def _rows(query: StreamingQuery) -> int | None:
    """Input rows of the last report; None without one."""
    progress = query.lastProgress
    return None if progress is None else progress["numInputRows"]
