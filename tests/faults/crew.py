"""The members of a chaotic group: programs that are started, stopped and killed, again and again."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faults import PYTHONPATH
from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.download import jars
from spark_kafka_group.testing.node import session

JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
SESSION_MS = 4_000
REBALANCE_MS = 30_000
NEWER_BROKER = {
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": str(SESSION_MS // 10),
    "group.consumer.heartbeat.interval.ms": str(SESSION_MS // 10),
}
"""A broker's settings by which members of the newer protocol are as quick as the others here."""
ENDS_WITHIN_S = 90.0
CLEANLY, AT_ONCE, KILLED = "cleanly", "at once", "killed"
FOLDERS = ("checkpoints", "events", "rows", "java", "logs")


@dataclass(frozen=True)
class Run:
    """Values that all members of a run share."""

    kafka: KafkaCluster
    directory: Path
    topic: str
    group: str
    strategy: str
    batch_seconds: float
    one_application: bool = False  # queries are sources of one application: batches give way until they begin


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def kill_session(pid: int) -> None:
    """kill -9 of all these."""
    while living := session(pid):
        for one in living:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                continue


class Member:
    """One place in the group, held by one process after the other."""

    kind = ""
    stops_cleanly_by = signal.SIGINT

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.name = name
        self.incarnation = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.ending: str | None = None  # how the process was asked to end

    @property
    def id(self) -> str:
        """Of the process that runs, or ran last."""
        return f"{self.name}-{self.incarnation}"

    @property
    def log(self) -> Path:
        return self.run.directory / "logs" / f"{self.id}.log"

    def start(self, seed: int) -> None:
        self.incarnation += 1
        self.ending = None
        with self.log.open("wb") as log, self.output().open("ab") as output:
            self.process = subprocess.Popen(
                self.command(seed),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PYTHONPATH},
            )

    def end(self, how: str) -> None:
        """Tell the process to end; does not wait for it, but if it is killed."""
        assert self.process is not None
        self.ending = how
        by = {CLEANLY: self.stops_cleanly_by, AT_ONCE: signal.SIGTERM, KILLED: signal.SIGKILL}[how]
        self.process.send_signal(by)
        if how == KILLED:
            self.process.wait()

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def listens(self) -> bool:
        """Whether it has come far enough to take a signal as it should."""
        return (self.run.directory / "events" / f"{self.id}.jsonl").exists()

    def failure(self) -> str | None:
        """The problem, if the process ended in another way than the requested one."""
        assert self.process is not None
        code = self.process.returncode
        if self.ending == KILLED or (self.ending is not None and code in self.good_codes()):
            return None
        return f"{self.id} was asked to end {self.ending}, and ended with {code}: {self.log.read_text()[-1500:]}"

    def good_codes(self) -> Sequence[int]:
        return (0,)

    def output(self) -> Path:
        return self.log

    def command(self, seed: int) -> Sequence[str]:
        raise NotImplementedError


class BareQuery(Member):
    """A query of ours without Spark. ``fresh`` gives it a new checkpoint when it starts next."""

    kind = "query"
    program = "faults.programs.bare_query"

    def __init__(self, run: Run, name: str) -> None:
        super().__init__(run, name)
        self.slot = name
        self.checkpoint = 0
        self.fresh()

    def fresh(self) -> None:
        self.checkpoint += 1
        self.name = f"{self.slot}.{self.checkpoint}"

    def command(self, seed: int) -> Sequence[str]:
        directory = self.run.directory
        options = {
            "kafka.bootstrap.servers": self.run.kafka.bootstrap_servers,
            "kafka.group.id": self.run.group,
            "subscribe": self.run.topic,
            "startingOffsets": "group",
            "kafka.auto.offset.reset": "earliest",
            "kafka.partition.assignment.strategy": self.run.strategy,
            "kafka.session.timeout.ms": str(SESSION_MS),
            "kafka.heartbeat.interval.ms": str(SESSION_MS // 10),
            "kafka.max.poll.interval.ms": str(REBALANCE_MS),
            "eventLog": str(directory / "events" / f"{self.id}.jsonl"),
        }
        return [
            sys.executable, "-m", self.program, "--options", json.dumps(options),
            "--checkpoint", str(directory / "checkpoints" / self.name),
            "--rows", str(directory / "rows" / f"{self.name}.jsonl"),
            "--seed", str(seed), "--batch-seconds", str(self.run.batch_seconds),
            *(["--shared", str(directory)] if self.run.one_application else []),
        ]  # fmt: skip


class SparkQuery(BareQuery):
    """A real streaming query: all its processes end together, and it cannot be ended between two batches."""

    program = "faults.programs.chaos_spark_query"

    def end(self, how: str) -> None:
        assert self.process is not None
        if how == KILLED:
            self.ending = how
            kill_session(self.process.pid)
            self.process.wait()
        else:
            super().end(AT_ONCE)

    def ended(self) -> bool:
        return super().ended() and (self.process is None or not session(self.process.pid))


class PythonConsumer(Member):
    """A kafka-python consumer."""

    kind = "python"

    def command(self, seed: int) -> Sequence[str]:
        directory, run = self.run.directory, self.run
        return [
            sys.executable, "-m", "faults.programs.consumer", "--bootstrap-servers", run.kafka.bootstrap_servers,
            "--topic", run.topic, "--group", run.group, "--name", self.id, "--strategy", run.strategy,
            "--session-timeout-ms", str(SESSION_MS), "--rows", str(directory / "rows" / f"{self.id}.jsonl"),
            "--events", str(directory / "events" / f"{self.id}.jsonl"),
            "--seed", str(seed), "--batch-seconds", str(run.batch_seconds),
        ]  # fmt: skip


class JavaConsumer(Member):
    """Kafka's own VerifiableConsumer; its output becomes events when the run is judged."""

    kind = "java"
    stops_cleanly_by = signal.SIGTERM

    def good_codes(self) -> Sequence[int]:
        return (0, 128 + signal.SIGTERM, -signal.SIGTERM)

    def listens(self) -> bool:
        return "startup_complete" in self.output().read_text()

    def output(self) -> Path:
        return self.run.directory / "java" / f"{self.id}.jsonl"

    def command(self, seed: int) -> Sequence[str]:
        run = self.run
        settings = {
            "client.id": self.id,
            "max.poll.interval.ms": REBALANCE_MS,
            "max.poll.records": 20 + seed % 200,
            **self.settings(),
        }
        config = run.directory / "java" / f"{self.id}.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return [
            java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
            "-cp", str(jars("kafka-tools", run.kafka.version) / "*"), "org.apache.kafka.tools.VerifiableConsumer",
            "--bootstrap-server", run.kafka.bootstrap_servers, "--topic", run.topic, "--group-id", run.group,
            "--reset-policy", "earliest", "--verbose", "--command-config", str(config), *self.protocol(),
        ]  # fmt: skip

    def settings(self) -> dict[str, str | int]:
        return {"heartbeat.interval.ms": SESSION_MS // 10}

    def protocol(self) -> Sequence[str]:
        strategy = f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[self.run.strategy]}"
        return ["--session-timeout", str(SESSION_MS), "--assignment-strategy", strategy]


class NewerJavaConsumer(JavaConsumer):
    """The same of Kafka's newer group protocol (KIP-848): the broker says how often it sends heartbeats."""

    def settings(self) -> dict[str, str | int]:
        return {}

    def protocol(self) -> Sequence[str]:
        return ["--group-protocol", "consumer"]


class NewerConsumer(Member):
    """A librdkafka consumer of the newer group protocol; a static member if it has an instance id."""

    kind = "librdkafka"

    def __init__(self, run: Run, name: str, instance_id: str | None = None) -> None:
        super().__init__(run, name)
        self._static = [] if instance_id is None else ["--instance-id", instance_id]

    def command(self, seed: int) -> Sequence[str]:
        directory, run = self.run.directory, self.run
        return [
            sys.executable, "-m", "faults.programs.newer_consumer", "--bootstrap-servers", run.kafka.bootstrap_servers,
            "--topic", run.topic, "--group", run.group, "--name", self.id, *self._static,
            "--rows", str(directory / "rows" / f"{self.id}.jsonl"),
            "--events", str(directory / "events" / f"{self.id}.jsonl"),
            "--seed", str(seed), "--batch-seconds", str(run.batch_seconds),
        ]  # fmt: skip
