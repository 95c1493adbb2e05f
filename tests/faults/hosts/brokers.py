"""Three brokers on hosts of their own, with Kafka's default timeouts, and the leaders in a live one's metadata."""

from __future__ import annotations

import socket
import struct
import subprocess
from pathlib import Path

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from faults.hosts.network import Network
from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing import KafkaCluster, download, wait_until
from spark_kafka_group.testing.download import VERSION, jars, logging_jars
from spark_kafka_group.testing.node import LOG4J

HOSTS = ("one", "two", "three")
SETTINGS = """\
process.roles=broker,controller
node.id={number}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{address}:9092,CONTROLLER://{address}:9093
advertised.listeners=PLAINTEXT://{address}:9092,CONTROLLER://{address}:9093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters={voters}
log.dirs={directory}/data
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=3
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
metadata.max.idle.interval.ms=0
"""
VERSION_ASKED = 9


class Brokers:
    """Brokers 1 to 3, in the order of HOSTS; a context manager."""

    def __init__(self, network: Network, directory: Path) -> None:
        self._network = network
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._options: list[str] = []
        self.bootstrap_servers = ",".join(f"{network.addresses[host]}:9092" for host in HOSTS)

    def __enter__(self) -> Brokers:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        voters = ",".join(f"{n}@{self._network.addresses[host]}:9093" for n, host in enumerate(HOSTS, start=1))
        started = KafkaCluster(directory=self._directory).started()
        cluster_id = download.new_id()
        for number, host in enumerate(HOSTS, start=1):
            directory = self._directory / host
            directory.mkdir()
            address = self._network.addresses[host]
            given = {"number": number, "address": address, "voters": voters, "directory": directory}
            (directory / "server.properties").write_text(SETTINGS.format(**given))
            (directory / "log4j2.properties").write_text(LOG4J)
            download.copy_data(started, directory / "data", cluster_id, number)
        self._options = download.options(started)
        for host in HOSTS:
            self.start(host)
        wait_until(self.all_serve, within=90)

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def kill(self, host: str) -> None:
        """kill -9 of a broker."""
        process = self._processes.pop(host)
        process.kill()
        process.wait()

    def start(self, host: str) -> None:
        """Start a broker; does not wait until it serves."""
        self._processes[host] = self._broker(host, self._options)

    def all_serve(self) -> bool:
        """Whether each of them answers."""
        return all(self.says(host) is not None for host in HOSTS)

    def says(self, host: str, *topics: str) -> dict[tuple[str, int], int] | None:
        """Leaders of the partitions of `topics`, as this broker knows them; None when it does not answer."""
        named = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(version=VERSION_ASKED, topics=named, allow_auto_topic_creation=False)
        request.with_header(correlation_id=1, client_id="tests")
        try:
            with socket.create_connection((self._network.addresses[host], 9092), 2) as sock:
                sock.sendall(request.encode(header=True, framed=True))
                with sock.makefile("rb") as file:
                    frame = file.read(struct.unpack(">i", file.read(4))[0])
        except (OSError, struct.error):
            return None
        response = MetadataResponse.decode(frame, version=VERSION_ASKED, header=True)
        return {(t.name, p.partition_index): p.leader_id for t in response.topics for p in t.partitions}

    def _broker(self, host: str, options: list[str]) -> subprocess.Popen[bytes]:
        classpath = ":".join(map(str, [*logging_jars(), jars("kafka_2.13", VERSION) / "*"]))
        memory = ["-Xmx400m", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:TieredStopAtLevel=1"]
        logging = "-Dlog4j2.configurationFile=log4j2.properties"
        command = [java(), *memory, *options, logging, "-cp", classpath, "kafka.Kafka", "server.properties"]
        with (self._directory / host / "log").open("ab") as log:
            return subprocess.Popen(
                [*self._network.within(host), *command],
                cwd=self._directory / host, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
