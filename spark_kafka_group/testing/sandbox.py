"""A place to try things in a notebook: Spark, topics and folders that are gone when it ends."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_kafka_group.testing.cluster import KafkaCluster
from spark_kafka_group.testing.node import wait_until

if TYPE_CHECKING:
    from kafka import KafkaAdminClient
    from pyspark.sql import SparkSession

SERVERS = "KAFKA_BOOTSTRAP_SERVERS"
TOPICS_WITHIN_S = 60.0
OF_SPARK: dict[str, Any] = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
"""A shuffle of few records takes longer with the 200 partitions of Spark's default."""


class Sandbox:
    """Topics of one broker, folders, and a Spark session. :func:`open_sandbox` makes it.

    Parameters
    ----------
    servers
        For kafka.bootstrap.servers: a broker that others may use, too. Names of topics and groups get a suffix there,
        so that none of others is touched. A broker of its own, which :meth:`close` stops, if not given.

    Attributes
    ----------
    servers
        Of the broker.

    Raises
    ------
    RuntimeError
        When its own broker does not start.
    """

    def __init__(self, servers: str | None = None) -> None:
        self._cluster = None if servers else KafkaCluster().start()
        self._suffix = f"-{uuid.uuid4().hex[:6]}" if servers else ""
        self.servers: str = servers or self._cluster.bootstrap_servers  # type: ignore[union-attr]
        self._directory = Path(tempfile.mkdtemp(prefix="spark-kafka-group-sandbox-"))
        self._topics: set[str] = set()
        self._spark: SparkSession | None = None
        self._closed = False
        atexit.register(self.close)

    def spark(self) -> SparkSession:
        """A local Spark session, the same one as long as it runs: times are in UTC, and Spark logs errors only.

        Its workers run this Python, unless the variable ``PYSPARK_PYTHON`` names another one.
        """
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._spark = SparkSession.builder.master("local[2]").config(map=OF_SPARK).getOrCreate()
        return self._spark

    def topic(self, name: str, partitions: int = 3, beside: Sequence[str] = ()) -> str:
        """Make a topic, without records also where this sandbox has made it before; returns its name.

        Parameters
        ----------
        beside
            Suffixes of more topics with as many partitions, as ``-dlt``.

        Raises
        ------
        kafka.errors.KafkaError
            When the broker does not make it.
        """
        from kafka.admin import NewTopic

        topic = f"{name}{self._suffix}"
        wanted = [topic, *(f"{topic}{suffix}" for suffix in beside)]
        with self._admin() as admin:
            self._delete(admin, self._topics.intersection(wanted))
            admin.create_topics([NewTopic(each, partitions, -1) for each in wanted])
            self._topics.update(wanted)
            wait_until(lambda: _led(admin, wanted) == partitions * len(wanted), within=TOPICS_WITHIN_S)
        return topic

    def group(self, name: str) -> str:
        """The name of a consumer group that has no other members, with the suffix that topics have."""
        return f"{name}{self._suffix}"

    def folder(self, name: str) -> str:
        """The path of a folder, empty also where this sandbox has made it before."""
        folder = self._directory / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return str(folder)

    def close(self) -> None:
        """Stop the queries and Spark, delete the topics and folders, and stop the sandbox's own broker.

        Harmless when repeated.
        """
        atexit.unregister(self.close)
        if self._closed:
            return
        self._closed = True
        open_sandbox.cache_clear()
        try:
            self._stop_spark()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._end_topics()

    def _stop_spark(self) -> None:
        """The queries first: their members leave their groups while the topics are still there."""
        if self._spark is not None:
            for query in self._spark.streams.active:
                query.stop()
            self._spark.stop()

    def _end_topics(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
            return
        with self._admin() as admin:
            self._delete(admin, self._topics)

    def _admin(self) -> KafkaAdminClient:
        from kafka import KafkaAdminClient

        return KafkaAdminClient(bootstrap_servers=self.servers)

    def _delete(self, admin: KafkaAdminClient, topics: Iterable[str]) -> None:
        """Offsets that groups have committed of them go with them, and groups that have no others."""
        going = set(topics).intersection(admin.list_topics())
        if going:
            admin.delete_topics(sorted(going))
            wait_until(lambda: going.isdisjoint(admin.list_topics()), within=TOPICS_WITHIN_S)


@functools.cache
def open_sandbox() -> Sandbox:
    """The sandbox of this process, which ends with it: the first call makes it.

    Its broker is that of the variable ``KAFKA_BOOTSTRAP_SERVERS``; without one the sandbox starts a broker.

    Raises
    ------
    RuntimeError
        When its own broker does not start.
    """
    return Sandbox(os.environ.get(SERVERS))


def _led(admin: KafkaAdminClient, topics: Sequence[str]) -> int:
    """How many partitions have a leader."""
    found = [p for topic in admin.describe_topics(list(topics)) for p in topic["partitions"]]
    return sum(p["leader_id"] >= 0 for p in found)
