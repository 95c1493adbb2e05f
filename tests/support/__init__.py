"""Helpers of tests in several folders: topics with records, queries, and lookups of the group."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, KafkaError
from kafka.structs import TopicPartition

from spark_kafka_group.testing import wait_until

QUICK_CHECKPOINTS = ("spark.hadoop.fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.RawLocalFs")
"""A setting of Spark: no checksum files beside those of local checkpoints. Hadoop runs chmod for each file it makes."""


class Record(NamedTuple):
    """A record to produce."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 1_700_000_000_000


@contextlib.contextmanager
def a_full_queue() -> Iterator[str]:
    """The address of a server that takes no more connections: the kernel does not answer."""
    with socket.socket() as server, contextlib.ExitStack() as taken:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(2):
            client = taken.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    """Have a server take connections, in a thread, until the block ends; then it is closed."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def name(prefix: str) -> str:
    """A name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def numbered(count: int, partitions: int, first: int = 0) -> list[Record]:
    """Records with distinct keys and values, dealt to the partitions one by one."""
    return [Record(n % partitions, b"k%d" % n, b"v%d" % n) for n in range(first, first + count)]


def produce(kafka: Any, topic: str, records: Iterable[Record], compression: str | None = None, **configs: Any) -> None:
    """Send `records` in order and wait until the broker has them."""
    producer = KafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, compression_type=compression, acks="all", **configs
    )
    try:
        sent = [
            producer.send(
                topic,
                partition=record.partition,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush()
        for future in sent:
            future.get(timeout=30)
    finally:
        producer.close()


def topic_with(kafka: Any, records: Iterable[Record], partitions: int = 3, **configs: Any) -> str:
    """A new topic that holds `records`; `configs` are the producer's."""
    topic = name("topic")
    kafka.create_topic(topic, partitions=partitions)
    produce(kafka, topic, records, **configs)
    return topic


def options(kafka: Any, topic: str, group: str | None = None, **more: Any) -> dict[str, str]:
    """Options of the source, by the names a user writes."""
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    if group is not None:
        base["kafka.group.id"] = group
    return base | {key: str(value) for key, value in more.items()}


def wait_for_markers(kafka: Any) -> None:
    """Wait until each transaction that was committed or aborted has ended in its partitions, also in those of groups.

    Brokers answer EndTxn first, and write the markers then. Brokers before 3.0 list no transactions; of a broker that
    is down another one has the transactions soon.
    """

    def ended() -> bool:
        living = [node.number for node in kafka.nodes if node.process is not None]
        try:
            found = kafka.admin.list_transactions(living, state_filters=["PrepareCommit", "PrepareAbort"])
        except KafkaConnectionError:
            return False
        return not any(found.values())

    with contextlib.suppress(IncompatibleBrokerVersion):
        wait_until(ended, within=60)


def committed(kafka: Any, group: str) -> dict[tuple[str, int], int]:
    """Committed offsets of a group, also of a transaction that was just committed."""
    wait_for_markers(kafka)
    return {tp: offset for tp, (offset, _) in kafka.committed(group).items()}


def end_offset(kafka: Any, topic: str, partition: int = 0) -> int:
    """Where the next record of a partition goes: markers of transactions count."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
    try:
        tp = TopicPartition(topic, partition)
        return int(consumer.end_offsets([tp])[tp])
    finally:
        consumer.close()


def partitions_of(kafka: Any, topic: str) -> list[Mapping[str, Any]]:
    """A broker's description of a topic's partitions; none where that broker was just killed."""
    try:
        (found,) = kafka.admin.describe_topics([topic])
    except KafkaError:
        return []
    return list(found["partitions"])


def in_sync(kafka: Any, topic: str, partition: int = 0) -> set[int]:
    """The in-sync replicas of a partition; none as of :func:`partitions_of`."""
    return {
        replica
        for one in partitions_of(kafka, topic)
        if one["partition_index"] == partition
        for replica in one["isr_nodes"]
    }


def committed_epochs(kafka: Any, group: str) -> set[int]:
    """Leader epochs of a group's committed offsets."""
    return {committed.leader_epoch for committed in kafka.admin.list_group_offsets([group])[group].values()}


def members(kafka: Any, group: str) -> list[Mapping[str, Any]]:
    """Members of a group."""
    return kafka.group_state(group)[1]


def new_client(
    kafka: Any, topic: str, group: str, instance_id: str | None = None, strategies: Any = None, **more: Any
) -> Any:
    """A client of a group that has not joined yet."""
    from spark_kafka_group.assignors import resolve
    from spark_kafka_group.options import Options
    from spark_kafka_group.wire import GroupClient

    parsed = Options.parse(options(kafka, topic, group, **more))
    client = GroupClient(parsed, group, instance_id, strategies or resolve(("range",)))
    client.subscribe(parsed.reading.subscription)
    client.partitions(parsed.reading.subscription)
    return client


def throw_out(kafka: Any, group: str, *names: str) -> None:
    """Remove static members of a group, all if no `names` are given, as the coordinator does when a session expires."""
    from kafka.admin import MemberToRemove

    given = names or [member["group_instance_id"] for member in members(kafka, group)]
    kafka.admin.remove_group_members(group, [MemberToRemove(group_instance_id=name) for name in given])


def wait_for_no_members(kafka: Any, group: str) -> None:
    """Wait until the members of queries that have ended have left: a query ends some ms before its member leaves."""
    wait_until(lambda: not members(kafka, group), within=60)


def commit_for(kafka: Any, group: str, offsets: Mapping[tuple[str, int], int], note: str = "") -> None:
    """Commit to a group without members: as another client, unless the note is this project's."""
    from kafka import KafkaConsumer
    from kafka.structs import OffsetAndMetadata

    wait_for_no_members(kafka, group)
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group, enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition(*tp) for tp in offsets])
        consumer.commit({TopicPartition(*tp): OffsetAndMetadata(offset, note, -1) for tp, offset in offsets.items()})
    finally:
        consumer.close(autocommit=False)
