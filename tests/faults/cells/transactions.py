"""Transactional producers, and queries that read with ``read_committed``."""

from __future__ import annotations

import time

from kafka import KafkaProducer

from faults.cells.brokers import coordinator, killed
from faults.cells.drivers import driver_kill
from faults.cells.registry import cell
from faults.load import identity
from faults.scene import Scene

TRANSACTION = "transaction"
READ_COMMITTED = {"kafka.isolation.level": "read_committed"}
ABORTS = {"aborts": 0.3}


@cell(
    TRANSACTION, "SIGKILL of the program, while a third of the transactions is aborted",
    options=READ_COMMITTED, load=ABORTS,
)  # fmt: skip
def transaction_driver_kill(scene: Scene) -> None:
    driver_kill(scene)


@cell(
    TRANSACTION, "SIGKILL of the coordinator for 5 s, while a third of the transactions is aborted",
    options=READ_COMMITTED, load=ABORTS, nodes=3, sources=("groupkafka",), at_once=5,
)  # fmt: skip
def transaction_coordinator_kill(scene: Scene) -> None:
    scene.pause()
    killed(scene, coordinator(scene), "coordinator")


@cell(
    TRANSACTION, "a transaction hangs for 10 s, until the broker aborts it, while others are committed and aborted",
    options=READ_COMMITTED, load=ABORTS, at_once=5,
    properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"},
)  # fmt: skip
def transaction_hangs(scene: Scene) -> None:
    name = f"hanging{len(scene.faults)}"
    producer = KafkaProducer(
        bootstrap_servers=scene.kafka.bootstrap_servers, transactional_id=f"{scene.topic}-{name}",
        transaction_timeout_ms=10_000, acks="all",
    )  # fmt: skip
    try:
        producer.init_transactions()
        with scene.fault("a transaction hangs for 10 s"):
            producer.begin_transaction()
            for partition in range(scene.topics[scene.topic]):
                record = identity(name, scene.topic, partition, 0)
                scene.aborted.add(record)
                producer.send(scene.topic, record.encode(), partition=partition).get(timeout=30)
            time.sleep(12)  # the fault itself: until the broker ends it
    finally:
        producer.close(timeout=1)
