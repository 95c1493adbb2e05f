"""Batches of an exactly-once write, as Spark runs them: planned, written by tasks, committed. Also in a process of its
own that dies where it is told to.

    python -m support.exactly_once_runs OPTIONS WHERE

OPTIONS is JSON of :class:`Run`'s arguments. WHERE is one of KILL_POINTS, or "nowhere".
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka.admin import UpdateFeatureType
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.executor.writing.task_transaction import TaskTransaction
from spark_kafka_group.options import Options
from spark_kafka_group.options.transacting import Transacting, TransactionOptions
from spark_kafka_group.testing import wait_until
from spark_kafka_group.transactions import finishing
from spark_kafka_group.transactions.deciding import abort_undecided, decide_and_end
from spark_kafka_group.transactions.planning import planned
from spark_kafka_group.values.exactly_once import BatchId, ProducerIdAndEpoch
from spark_kafka_group.values.files import file_name, make_folder, put, remove
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.planned_transactions import PlannedTransactions, TaskWrite
from spark_kafka_group.values.source_offsets import LiveSource, SourceOffsets, folder_of
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.partition_client import PartitionClient
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient
from support import wait_for_markers

KILL_POINTS = ("begun", "half written", "flushed", "deciding", "decided", "half ended", "ended")
"""Before the flush, after it, with the decision's record written but not committed, right after the decision, between
two EndTxn, and after all of them."""


def transaction_options(
    servers: str,
    prefix: str,
    timeout_ms: int | None = None,
    topic: str | None = None,
    limit_ms: int = 30_000,
    checkpoint: str | None = None,
    **more: str,
) -> TransactionOptions:
    """Of an exactly-once write; `more` are options of connections."""
    given = {"kafka.bootstrap.servers": servers, "subscribe": "t"} | more
    settings: dict[str, Any] = {} if topic is None else {"decision_topic": topic}
    return TransactionOptions(
        Options.parse(given).client, Transacting(prefix, timeout_ms, **settings), limit_ms, checkpoint
    )


class Run:
    """Batches of one query. `shared` is the directory of one Spark application; without it each batch is a restart."""

    def __init__(self, options: TransactionOptions, topic: str, query: str = "q", shared: str | None = None) -> None:
        self.options = options
        self.topic = topic
        self.query = query
        self.shared = None if shared is None else Path(shared)
        self.run = ""

    def plan(self) -> PlannedTransactions:
        """What streamWriter does."""
        return planned(self.options, self.shared)

    def task(
        self, plan: PlannedTransactions, batch: int, slot: int, rows: Sequence[bytes], attempt: int = 0
    ) -> TaskWrite:
        """What an attempt of a task does: row n to partition n % 2."""
        batch_id = BatchId(self.query, batch)
        if plan.is_written(batch_id, self.run) or not rows:
            return TaskWrite(plan, batch_id, None, len(rows), self.run)
        with TransactionClient(self.options.client, "executor", self.options.limit_ms) as client:
            transaction, logs = TaskTransaction(client, plan, slot, attempt), PartitionClient(client)
            try:
                producer, last, sent = transaction.begin(), {}, [0, 0]
                for number, row in enumerate(rows):
                    tp, key, count = TopicPartition(self.topic, number % 2), b"%d" % slot, sent[number % 2]
                    transaction.add_partitions({tp})
                    last[tp] = logs.write(tp, key, row, transaction.transactional_id, producer, count)
                    sent[number % 2] += 1
                transaction.check_needed()
            except BaseException:
                with contextlib.suppress(BrokerError):
                    transaction.abort()
                raise
            return TaskWrite(plan, batch_id, transaction.written(last), len(rows), self.run)

    def tasks(self, plan: PlannedTransactions, batch: int, slots: int = 2, rows: int = 3) -> list[TaskWrite]:
        """All tasks of a batch, each with rows of its own."""
        return [self.task(plan, batch, slot, rows_of(batch, slot, rows)) for slot in range(slots)]

    def commit(self, messages: Sequence[TaskWrite | None]) -> None:
        """What the writer's commit does."""
        decide_and_end(self.options, messages, self.shared)

    def abort(self, messages: Sequence[TaskWrite | None], planned_here: PlannedTransactions | None = None) -> None:
        """What the writer's abort does; a batch writer knows its plan."""
        abort_undecided(self.options, messages, self.shared, planned_here)

    def batch(self, batch: int, slots: int = 2, rows: int = 3) -> list[TaskWrite]:
        """A whole batch."""
        messages = self.tasks(self.plan(), batch, slots, rows)
        self.commit(messages)
        return messages


@contextlib.contextmanager
def running_source(directory: Path, run: Run, group: str, batch: int, offset: int) -> Iterator[None]:
    """A source of the application, with the id of a write, runs a batch that ends at this offset; of no member."""
    offsets = SourceOffsets(group, -1, "", None, "r", batch, "", {TopicPartition(run.topic, 0): offset})
    path = folder_of(directory, run.options.prefix) / f"{file_name(offsets.query_id)}.json"
    make_folder(path.parent, directory)
    file = put(path, LiveSource(offsets.query_id, 1, has_begun=True, running=offsets).to_text())
    try:
        yield
    finally:
        remove(file, path)


def begun(
    client: TransactionClient, transactional_id: str, tp: TopicPartition, value: bytes = b"value"
) -> ProducerIdAndEpoch:
    """Take an id, and write a record in its transaction, which stays open; its producer."""
    producer = client.take_id(transactional_id, 600_000)
    client.add(transactional_id, producer, [tp])
    PartitionClient(client).write(tp, b"key", value, transactional_id, producer, 0)
    return producer


def rows_of(batch: int, slot: int, rows: int) -> list[bytes]:
    """The rows of a task: no other task has them."""
    return [b"%d-%d-%d" % (batch, slot, row) for row in range(rows)]


def all_rows(batches: int, slots: int = 2, rows: int = 3) -> list[bytes]:
    """The rows of the first batches, sorted."""
    return sorted(row for batch in range(batches) for slot in range(slots) for row in rows_of(batch, slot, rows))


def read(kafka: Any, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Values of partitions 0 and 1, sorted: all that a consumer gets without waiting for open transactions."""
    wait_for_markers(kafka)
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation)
    try:
        tps = [KafkaTopicPartition(topic, 0), KafkaTopicPartition(topic, 1)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        ends, found = consumer.end_offsets(tps), []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            found += [record.value for records in consumer.poll(200).values() for record in records]
        return sorted(found)
    finally:
        consumer.close()


def unstable(kafka: Any, topic: str) -> list[int]:
    """The partitions in which readers of committed records wait for an open transaction."""
    wait_for_markers(kafka)
    tps = [KafkaTopicPartition(topic, number) for number in (0, 1)]
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation)
        ends.append(consumer.end_offsets(tps))
        consumer.close()
    return [tp.partition for tp in tps if ends[0][tp] != ends[1][tp]]


def set_transaction_version(kafka: Any, version: int) -> None:
    """Have brokers treat epochs as those did whose transaction.version this is: 0 or 1 before Kafka 4."""

    def finalized() -> int:
        found = kafka.admin.describe_features()["transaction.version"]
        return int(found["finalized"][1]) if "finalized" in found else 0

    if finalized() == version:
        return
    kafka.admin.update_features({"transaction.version": (UpdateFeatureType.SAFE_DOWNGRADE, version)})
    wait_until(lambda: finalized() == version, within=30)


def killed(options: TransactionOptions, topic: str, batch: int, where: str, more: dict[str, str]) -> int:
    """Run a batch in another process, which dies there; its exit code."""
    given = {
        "servers": options.client.connection.bootstrap_servers, "prefix": options.prefix,
        "timeout_ms": options.transacting.transaction_timeout_ms, "topic": topic, "batch": batch, "more": more,
        "decisions": options.transacting.decision_topic,
    }  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-m", "support.exactly_once_runs", json.dumps(given), where]
    return subprocess.run(command, check=False, timeout=120, env=environment).returncode


def _die_at(where: str) -> None:
    """Have this process die at a point. Real calls of real classes, and the end of the process after some of them."""

    def dying(kind: Any, method: str, calls: int, before: bool = False) -> None:
        whole, done = getattr(kind, method), 0

        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if before and done == calls:
                os.kill(os.getpid(), signal.SIGKILL)
            result = whole(*arguments, **named)
            if done == calls:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(kind, method, counted)

    match where:
        case "begun":
            dying(TaskTransaction, "add_partitions", 1)
        case "half written":
            dying(PartitionClient, "write", 4)
        case "flushed":
            dying(DecisionLog, "append", 1, before=True)
        case "deciding":
            dying(PartitionClient, "write", 7)  # six rows, and the decision
        case "decided":
            dying(DecisionLog, "append", 1)
        case "half ended":
            finish = finishing.finish

            def one_by_one(client: Any, decisions: Any, decision: Any) -> Any:
                client.commit(decision.transactions[0].transactional_id, decision.transactions[0].producer)
                os.kill(os.getpid(), signal.SIGKILL)
                return finish(client, decisions, decision)

            import spark_kafka_group.transactions.deciding as deciding

            deciding.finish = one_by_one
        case "ended":
            import spark_kafka_group.transactions.deciding as deciding

            dying(deciding, "finish", 1)


def main() -> None:
    given, where = json.loads(sys.argv[1]), sys.argv[2]
    options = transaction_options(
        given["servers"], given["prefix"], given["timeout_ms"], given["decisions"], **given["more"]
    )
    run = Run(options, given["topic"])
    plan = run.plan()
    _die_at(where)
    run.commit(run.tasks(plan, given["batch"]))


if __name__ == "__main__":
    main()
