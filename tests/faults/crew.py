"""The members of a chaotic group: programs that are started, stopped and killed, again and again."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faults import PYTHONPATH
from faults.evidence import CLEANLY
from faults.neighbours import of_java, of_python
from faults.processes import kill_session
from faults.running import program
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.node import session

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
AT_ONCE, KILLED = "at once", "killed"
FOLDERS = ("queries", "neighbours", "logs")


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


class Member:
    """One place in the group, held by one process after the other."""

    stops_cleanly_by = signal.SIGTERM

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
        raise NotImplementedError

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

    stops_cleanly_by = signal.SIGINT

    def __init__(self, run: Run, name: str) -> None:
        super().__init__(run, name)
        self.slot = name
        self.checkpoint = 0
        self.fresh()

    def fresh(self) -> None:
        self.checkpoint += 1
        self.name = f"{self.slot}.{self.checkpoint}"

    @property
    def directory(self) -> Path:
        return self.run.directory / "queries" / self.name

    def listens(self) -> bool:
        return (self.directory / "events" / f"{self.id}.jsonl").exists()

    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.run.kafka.bootstrap_servers,
            "kafka.group.id": self.run.group,
            "subscribe": self.run.topic,
            "startingOffsets": "group",
            "kafka.auto.offset.reset": "earliest",
            "kafka.partition.assignment.strategy": self.run.strategy,
            "kafka.session.timeout.ms": str(SESSION_MS),
            "kafka.heartbeat.interval.ms": str(SESSION_MS // 10),
            "kafka.max.poll.interval.ms": str(REBALANCE_MS),
            "eventLog": str(self.directory / "events" / f"{self.id}.jsonl"),
        }

    def command(self, seed: int) -> Sequence[str]:
        return [
            *program("bare_query", self.directory, self.id, self.options()), *drawn(self.run, seed),
            *(["--shared", str(self.run.directory)] if self.run.one_application else []),
        ]  # fmt: skip


def drawn(run: Run, seed: int) -> Sequence[str]:
    return ["--seed", str(seed), "--batch-seconds", str(run.batch_seconds)]


class SparkQuery(BareQuery):
    """A real streaming query: all its processes end together, and it cannot be ended between two batches."""

    def command(self, seed: int) -> Sequence[str]:
        return [
            *program("spark_query", self.directory, self.id, self.options()), *drawn(self.run, seed),
            "--source", "groupkafka", "--sink", "overwrite", "--master", "local[1]",
        ]  # fmt: skip

    def good_codes(self) -> Sequence[int]:
        return (128 + signal.SIGTERM,)

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


class Consumer(Member):
    """A member that is no query: its output becomes events when the run is judged.

    Attributes
    ----------
    newer
        Whether it is of Kafka's newer group protocol (KIP-848): the broker says how often it sends heartbeats.
    """

    newer = False

    def listens(self) -> bool:
        return "startup_complete" in self.output().read_text()

    def output(self) -> Path:
        return self.run.directory / "neighbours" / f"{self.id}.jsonl"


class PythonConsumer(Consumer):
    """A kafka-python consumer."""

    def command(self, seed: int) -> Sequence[str]:
        more = "--name", self.id, "--strategy", self.run.strategy, *drawn(self.run, seed)
        return of_python("kafka-python", self.run.kafka, self.run.topic, self.run.group, SESSION_MS / 1000, *more)


class NewerConsumer(Consumer):
    """A librdkafka consumer of the newer protocol; a static member if it has an instance id."""

    newer = True

    def __init__(self, run: Run, name: str, instance_id: str | None = None) -> None:
        super().__init__(run, name)
        self._static = [] if instance_id is None else ["--instance-id", instance_id]

    def command(self, seed: int) -> Sequence[str]:
        more = "--name", self.id, "--protocol", "consumer", *self._static, *drawn(self.run, seed)
        return of_python("confluent-kafka", self.run.kafka, self.run.topic, self.run.group, SESSION_MS / 1000, *more)


class JavaConsumer(Consumer):
    """Kafka's own VerifiableConsumer."""

    def good_codes(self) -> Sequence[int]:
        return (0, 128 + signal.SIGTERM, -signal.SIGTERM)

    def command(self, seed: int) -> Sequence[str]:
        settings = {
            "client.id": self.id,
            "max.poll.interval.ms": REBALANCE_MS,
            "max.poll.records": 20 + seed % 200,
        }
        if not self.newer:
            settings["heartbeat.interval.ms"] = SESSION_MS // 10
        config = self.output().with_suffix(".properties")
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        protocol = "consumer" if self.newer else "classic"
        run = self.run
        command = of_java(run.kafka, run.topic, run.group, SESSION_MS / 1000, protocol, run.strategy)
        return [*command, "--command-config", str(config)]


class NewerJavaConsumer(JavaConsumer):
    """The same of the newer protocol."""

    newer = True
