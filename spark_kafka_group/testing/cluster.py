"""A Kafka cluster of one node or three on this machine, for tests and demos, and the output of its tools as values."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing import download
from spark_kafka_group.testing.download import VERSION, jars
from spark_kafka_group.testing.node import Node, free_ports, wait_until

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


@dataclass(frozen=True)
class GroupRow:
    """One partition as ``kafka-consumer-groups --describe`` shows it; "-" is None."""

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


def parse_describe(text: str) -> list[GroupRow]:
    """Rows of the table, in order of topic and partition."""
    rows = []
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["GROUP", "TOPIC"]:
            columns = words
        elif columns and len(words) == len(columns):
            cell = {name: None if word == "-" else word for name, word in zip(columns, words, strict=True)}
            rows.append(
                GroupRow(
                    topic=cell["TOPIC"] or "",
                    partition=int(cell["PARTITION"] or -1),
                    current_offset=_number(cell["CURRENT-OFFSET"]),
                    log_end_offset=_number(cell["LOG-END-OFFSET"]),
                    lag=_number(cell["LAG"]),
                    consumer_id=cell["CONSUMER-ID"],
                    host=cell["HOST"],
                    client_id=cell["CLIENT-ID"],
                )
            )
    return sorted(rows, key=lambda row: (row.topic, row.partition))


def _number(cell: str | None) -> int | None:
    return None if cell is None else int(cell)


T = TypeVar("T")

BY_RACK = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

START_WITHIN_S = 90.0
FORMATTED_WITHIN_S = 90.0
TOOL_WITHIN_S = 120.0

WITH_PRODUCER_IDS = (3, 0)
WITH_ITS_OWN_TOOLS = (3, 8)  # versions before have their tools in the broker's module, as `kafka.admin...`


class KafkaCluster:
    """Brokers that really run. A context manager; ``with KafkaCluster() as kafka: ...``.

    Parameters
    ----------
    nodes
        1, or 3 with replication factor 3.
    properties
        Settings of every node. They take precedence over the defaults of this module.
    directory
        For data, settings and logs, which the next cluster reuses with this directory and as
        many nodes; a temporary directory, removed by :meth:`stop`, if not given.
    ports
        Client ports, one a node; free ones if not given.
    version
        Kafka's, from 2.8 on. In 2.8 and 3.0 to 3.2 the mode without ZooKeeper was an early version: 2.8 has neither
        producer ids, and so no transactions, nor partitions that are added.
    listeners
        More listeners for clients, their names to their security protocols: ``{"MTLS": "SSL"}``. Their other
        settings, for example certificates, are in `properties`, as ``listener.name.mtls.…``.
    racks
        The nodes' racks. Leaders then name the nearest replica to clients that say theirs.
    """

    def __init__(
        self,
        nodes: int = 1,
        properties: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
        ports: Sequence[int] | None = None,
        version: str = VERSION,
        listeners: Mapping[str, str] | None = None,
        racks: Sequence[str] | None = None,
    ) -> None:
        self._temporary = directory is None
        # Resolved: it is in the settings of processes with another working directory, which are known again by it.
        self.directory = Path(directory or tempfile.mkdtemp(prefix="spark-kafka-group-")).resolve()
        self.version = version
        self._line = tuple(map(int, version.split(".")[:2]))
        self._protocols = dict(listeners or {})
        self._racks = racks
        free = free_ports((2 + len(self._protocols)) * nodes)
        self.ports = list(ports or free[:nodes])
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(free[nodes : 2 * nodes], start=1))
        self._listeners = {
            name: free[number * nodes : (number + 1) * nodes] for number, name in enumerate(self._protocols, start=2)
        }
        settings = _settings(nodes) | {"controller.quorum.voters": voters} | dict(properties or {})
        self.nodes = [
            Node(
                n,
                self.directory / f"node{n}",
                settings | self._own(n, port, free[nodes + n - 1]),
                version,
                self.started,
            )
            for n, port in enumerate(self.ports, start=1)
        ]
        self._admin: KafkaAdminClient | None = None

    def _own(self, number: int, port: int, controller_port: int) -> dict[str, str]:
        """Settings in which a node differs from the others."""
        clients = {"PLAINTEXT": port} | {name: ports[number - 1] for name, ports in self._listeners.items()}
        served = [f"{name}://127.0.0.1:{own}" for name, own in clients.items()]
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | self._protocols
        return {
            "node.id": str(number),
            "listeners": ",".join([*served, f"CONTROLLER://127.0.0.1:{controller_port}"]),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "advertised.listeners": ",".join(served),
            "log.dirs": str(self.directory / f"node{number}" / "data"),
        } | ({} if self._racks is None else {"broker.rack": self._racks[number - 1], "replica.selector.class": BY_RACK})

    @property
    def bootstrap_servers(self) -> str:
        """For kafka.bootstrap.servers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def servers_of(self, listener: str) -> str:
        """For kafka.bootstrap.servers, by one of the `listeners` that were asked for."""
        return ",".join(f"127.0.0.1:{port}" for port in self._listeners[listener])

    def started(self) -> Path:
        """The folder that the first start of this version on this machine left."""
        return download.prepared_folder(self.version, functools.partial(_first_start, self.version))

    def node(self, index: int) -> Node:
        """A node, from 0."""
        return self.nodes[index]

    def start(self) -> KafkaCluster:
        """Start all nodes and wait until they serve.

        Raises
        ------
        RuntimeError
            When a node ends, or does not serve in time; with the end of its log.
        """
        atexit.register(self.stop)
        try:
            self._format()
            for node in self.nodes:
                node.start()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def _format(self) -> None:
        """Make the data directories of nodes that have none yet."""
        cluster_id = download.new_id()
        for node in self.nodes:
            node.check_port()
            node.configure()
            node.format(cluster_id)

    def stop(self) -> None:
        """Stop all nodes; remove their data unless a directory was given. Harmless when repeated."""
        self._close()
        for node in self.nodes:  # together: one by one, the last ones would wait for a quorum that is gone
            if not self._temporary:
                node.terminate()
        for node in self.nodes:
            node.kill() if self._temporary else node.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def detach(self) -> list[int]:
        """Let the nodes outlive this process; returns their process ids."""
        self._close()
        return [node.detach() for node in self.nodes]

    def _close(self) -> None:
        atexit.unregister(self.stop)
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def __enter__(self) -> KafkaCluster:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def wait_until_ready(self) -> None:
        """Wait until every living node takes requests and the cluster counts on it.

        Raises
        ------
        RuntimeError
            With the end of a node's log, and then what happened.
        """
        if self._admin is not None:  # it would wait out its reconnect backoff for a node that was down
            self._admin.close()
            self._admin = None
        living = [node for node in self.nodes if node.process is not None]
        deadline = time.monotonic() + START_WITHIN_S
        while True:
            for node in living:
                if not node.alive:
                    raise RuntimeError(f"{_tail(node.log)}node {node.number} ended while it started{node.why_ended()}")
            if all(node.serves() for node in living) and self._registered() >= {node.number for node in living}:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{_tail(living[0].log)}no cluster of {len(living)} nodes in {START_WITHIN_S:.0f} s")
            time.sleep(0.1)

    def _registered(self) -> set[int]:
        """Brokers that the cluster itself counts on, those fenced left out."""
        from kafka.errors import KafkaError

        manager = self.admin._manager  # its describe_cluster() fails with brokers before Kafka 3.7
        try:
            manager.run(manager.cluster.refresh_metadata)
        except KafkaError:
            return set()
        return {broker.node_id for broker in manager.cluster.brokers()}

    @property
    def admin(self) -> KafkaAdminClient:
        """kafka-python's admin client, kept until :meth:`stop`."""
        if self._admin is None:
            from kafka import KafkaAdminClient

            self._admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        return self._admin

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, replication: int | None = None, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and wait until all its partitions have leaders; returns its name."""
        from kafka.admin import NewTopic
        from kafka.errors import InvalidReplicationFactorError

        factor = replication or (3 if len(self.nodes) >= 3 else 1)
        topic = NewTopic(name, partitions, factor, topic_configs=dict(configs or {}))
        try:
            self.admin.create_topics([topic])
        except InvalidReplicationFactorError:  # a broker that was paused for long is not counted on for a while
            self.wait_until_ready()
            self.admin.create_topics([topic])
        self._wait_for_partitions(name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.admin.delete_topics([name])
        wait_until(lambda: name not in self.admin.list_topics(), within=START_WITHIN_S)

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's number of partitions to `total`."""
        self.admin.create_partitions({name: total})
        self._wait_for_partitions(name, total)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; waits while the broker that answers does not know the topic yet."""
        return wait_until(lambda: self._leaders(topic).get(partition, 0), within=START_WITHIN_S)

    def _leaders(self, topic: str) -> dict[int, int]:
        """Node of each partition that has a leader, as the broker that answers knows them; none where it has ended."""
        from kafka.errors import KafkaConnectionError

        try:
            partitions = [p for found in self.admin.describe_topics([topic]) for p in found["partitions"]]
        except KafkaConnectionError:  # the next call goes to another one
            return {}
        return {p["partition_index"]: p["leader_id"] for p in partitions if p["leader_id"] >= 0}

    def _wait_for_partitions(self, name: str, count: int) -> None:
        try:
            wait_until(lambda: len(self._leaders(name)) == count, within=START_WITHIN_S)
        except TimeoutError as error:
            raise RuntimeError(f"topic {name} has no leaders for its {count} partitions") from error

    def produce(
        self,
        topic: str,
        records: Iterable[bytes | tuple[bytes | None, bytes | None]],
        partition: int | None = None,
        compression: str | None = None,
        acks: str | int = "all",
    ) -> None:
        """Send values, or keys with values, in order, and wait until the brokers have them.

        Parameters
        ----------
        partition
            All to this one; by their keys if not given.
        compression
            ``gzip``, ``snappy``, ``lz4`` or ``zstd``; none if not given.
        """
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers,
            compression_type=compression,
            acks=acks,
            enable_idempotence=acks in ("all", -1) and self._line >= WITH_PRODUCER_IDS,
        )
        try:
            pairs = ((None, record) if isinstance(record, bytes) else record for record in records)
            sent = [producer.send(topic, key=key, value=value, partition=partition) for key, value in pairs]
            producer.flush()
            for future in sent:
                future.get(timeout=START_WITHIN_S)
        finally:
            producer.close()

    # Groups

    def group_state(self, group: str) -> tuple[str, list[dict[str, Any]]]:
        """State of a group, ``Dead`` when there is none of the classic protocol, and its members."""
        described = self._retried(lambda: self.admin.describe_groups([group]))[group]
        return described["group_state"] or "Dead", list(described["members"])

    def committed(self, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """Committed offset and metadata by topic and partition."""
        found = self._retried(lambda: self.admin.list_group_offsets([group]))[group]
        return {(tp.topic, tp.partition): (o.offset, o.metadata) for tp, o in found.items() if o.offset >= 0}

    def consumer_groups(self, *arguments: str) -> str:
        """The output of Kafka's own kafka-consumer-groups."""
        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        if self._line < WITH_ITS_OWN_TOOLS:
            tool = "kafka.admin.ConsumerGroupCommand"
        return self.run_tool(tool, "--bootstrap-server", self.bootstrap_servers, *arguments)

    def describe_group(self, group: str) -> list[GroupRow]:
        """``kafka-consumer-groups --describe``, a row a partition."""
        return parse_describe(self.consumer_groups("--describe", "--group", group))

    def _retried(self, call: Callable[[], T]) -> T:
        """Ask again while the group has no coordinator yet, as on a new cluster, or has another one since."""
        from kafka.errors import RetriableError

        deadline = time.monotonic() + START_WITHIN_S
        while True:
            try:
                return call()
            except RetriableError:
                if time.monotonic() > deadline:
                    raise
                # kafka-python would ask the former one for ever, also one that does not run.
                self.admin._manager.cluster._coordinators.clear()
                time.sleep(0.1)

    def run_tool(self, main_class: str, *arguments: str) -> str:
        """Run one of Kafka's tools; returns its output.

        Raises
        ------
        RuntimeError
            When it fails, with its output.
        """
        module = "kafka_2.13" if main_class.startswith("kafka.") else "kafka-tools"
        command = [java(), "-Xmx512m", "-cp", str(jars(module, self.version) / "*"), main_class, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_WITHIN_S)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{main_class} has not ended within {TOOL_WITHIN_S:.0f} s") from error
        if done.returncode:
            raise RuntimeError(f"{main_class} failed:\n{(done.stdout + done.stderr)[-2000:]}")
        return done.stdout


def _settings(nodes: int) -> dict[str, str]:
    """Settings that all nodes share: quick for tests, otherwise Kafka's defaults."""
    factor = str(min(nodes, 3))
    return {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.num.partitions": "5",
        "transaction.state.log.min.isr": "2" if nodes >= 3 else "1",
        "min.insync.replicas": "2" if nodes >= 3 else "1",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.ms": "-1",  # tests make records of any age, which must not vanish while they look
        "group.min.session.timeout.ms": "1000",
        "offsets.retention.check.interval.ms": "1000",
        "broker.session.timeout.ms": "4000",  # a node that was killed comes back only when the old one's is over
        "broker.heartbeat.interval.ms": "500",
        "metadata.max.idle.interval.ms": "0",  # an idle node writes nothing: it takes half the processor time
    }


def _tail(log: Path) -> str:
    """The end of a log, with a line break after it; nothing if the log has nothing."""
    text = log.read_text(errors="replace").strip()[-2000:] if log.exists() else ""
    return f"{text}\n" if text else ""


def _first_start(version: str, parts: Path) -> None:
    """Format a node, start it, have it do what tests ask of a broker, and stop it: its JVM writes the archive then."""
    kept = parts / "lib"
    kept.mkdir()
    cluster = KafkaCluster(directory=parts / "cluster", version=version)
    (node,) = cluster.nodes
    node.configure()
    node.format_by_tool(download.new_id(), within_s=FORMATTED_WITHIN_S)
    shutil.copytree(node.data, kept / download.DATA)
    try:
        node.start(download.ANY_JVM, f"-XX:ArchiveClassesAtExit={kept / download.ARCHIVE}")
        cluster.wait_until_ready()
        _use(cluster.bootstrap_servers, cluster.create_topic("first"))
    finally:
        cluster.stop()


def _use(servers: str, topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=False)
    producer.send(topic, b"record")
    producer.flush()
    producer.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id="first", auto_offset_reset="earliest")
    consumer.poll(timeout_ms=10_000)
    consumer.commit()
    consumer.close()
