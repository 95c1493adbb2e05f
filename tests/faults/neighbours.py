"""Other members of a group: consumers of every client, each a process that says what it does.

All print lines as Kafka's own VerifiableConsumer does. Records of a poll are printed before it is committed, so that a
consumer that was killed has printed all that it committed. No line has a generation, but each generation that the
coordinator stores has its members' client ids: it stores a generation before it answers a SyncGroup, so the generation
of an assignment that is printed is the last stored one with that consumer that is not younger than the line. There
cannot be a younger one: the consumer would have had to join again. All reads and commits up to its next assignment
belong to that generation.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from faults import PROGRAMS
from faults.evidence import TP, Place, Stored
from faults.processes import whole_lines
from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.download import jars
from spark_kafka_group.tools.event_logs import Event
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
TICK_MS = 1.0
"""The precision of the times that are printed."""


def of_java(
    kafka: KafkaCluster, topic: str, group: str, session_s: float, protocol: str = "classic", strategy: str = "range"
) -> list[str]:
    """The command of a VerifiableConsumer."""
    classic = [
        "--session-timeout", str(round(session_s * 1000)),
        "--assignment-strategy", f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[strategy]}",
    ]  # fmt: skip
    return [
        java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
        "-cp", str(jars("kafka-tools", kafka.version) / "*"), "org.apache.kafka.tools.VerifiableConsumer",
        "--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--group-id", group,
        "--reset-policy", "earliest", "--verbose", "--group-protocol", protocol,
        *(classic if protocol == "classic" else []),
    ]  # fmt: skip


def of_python(client: str, kafka: KafkaCluster, topic: str, group: str, session_s: float, *more: object) -> list[str]:
    """The command of a Python client, with more of the arguments of ``programs/consumer.py``."""
    return [
        sys.executable, str(PROGRAMS / "consumer.py"), "--client", client, "--servers", kafka.bootstrap_servers,
        "--topic", topic, "--group", group, "--session-ms", str(round(session_s * 1000)), *map(str, more),
    ]  # fmt: skip


class Said:
    """What a consumer has printed."""

    def __init__(self, output: Path) -> None:
        self.output = output

    def lines(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Its lines of JSON, each with its number; anything else, and a last line cut off, is passed over."""
        for number, line in enumerate(whole_lines(self.output), start=1):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and "name" in found:
                yield number, found

    def delivered(self) -> list[tuple[Place, str]]:
        """Records that it has committed."""
        return self._readings().delivered

    def in_doubt(self) -> list[tuple[Place, str]]:
        """Records that it has read, and perhaps committed."""
        return self._readings().in_doubt

    def _readings(self) -> Readings:
        readings = Readings()
        for _, line in self.lines():
            readings.said(line)
        readings.give_up()
        return readings


class Neighbour(Said):
    """A consumer in a process of its own."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        super().__init__(output)
        with output.open("wb") as file, output.with_suffix(".err").open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=errors)

    def end(self, number: signal.Signals) -> None:
        """Send a signal, and wait for the end."""
        self.process.send_signal(number)
        self.process.wait(60)

    def count(self) -> int:
        """Records that it has committed so far; an error if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"a neighbour has ended: {self.output.with_suffix('.err').read_text()[-1000:]}")
        return len(self.delivered())

    def reads(self) -> bool:
        """Whether it has read, or has ended."""
        return self.process.poll() is not None or b"record_data" in self.output.read_bytes()


class Readings:
    """What a consumer has read, by the lines that it prints.

    A record counts as committed if a commit that has succeeded is above it, since its partition was assigned. One that
    was read, and whose partition was taken away, or whose consumer was killed, before that is in doubt.
    """

    def __init__(self) -> None:
        self._read: dict[TP, dict[int, str]] = defaultdict(dict)
        self.delivered: list[tuple[Place, str]] = []
        self.in_doubt: list[tuple[Place, str]] = []

    def said(self, line: Mapping[str, Any]) -> None:
        """A line of its output."""
        match line["name"]:
            case "record_data":
                self._read[line["topic"], line["partition"]][line["offset"]] = line["value"]
            case "offsets_committed" if line["success"]:
                for one in line["offsets"]:
                    self._commit((one["topic"], one["partition"]), one["offset"])
            case "partitions_revoked" | "partitions_lost":
                for tp in _tps(line):
                    self.give_up(tuple(tp))

    def give_up(self, *tps: TP) -> None:
        """Nobody knows of the commit of what was read of these partitions, or of all."""
        for tp in tps or list(self._read):
            self.in_doubt += [((*tp, offset), value) for offset, value in sorted(self._read.pop(tp, {}).items())]

    def _commit(self, tp: TP, end: int) -> None:
        for offset in sorted(offset for offset in self._read[tp] if offset < end):
            self.delivered.append(((*tp, offset), self._read[tp].pop(offset)))


def _tps(line: Mapping[str, Any]) -> set[TopicPartition]:
    return {TopicPartition(one["topic"], one["partition"]) for one in line["partitions"]}


def events_of(said: Said, stored: Sequence[Stored], group: str, member: str, newer: bool) -> Iterator[Event]:
    """What a consumer has printed, as events; its client id is `member`.

    Parameters
    ----------
    stored
        The group's generations, in order.
    newer
        Whether the consumer is of the newer protocol: its epoch changes without a word, so its events have none.
    """
    owned: set[TopicPartition] = set()
    batch, generation, polled_ms = -1, -1, 0.0
    for number, line in said.lines():
        time_ms, more = float(line["timestamp"]), dict[str, Any]()
        match line["name"]:
            case "partitions_assigned":
                owned |= _tps(line)
                generation = generation if newer else generation_at(stored, member, time_ms, generation)
                kind, more = "assigned", {"partitions": frozenset(owned)}
            case "partitions_revoked" | "partitions_lost" if line["partitions"]:
                owned -= _tps(line)
                kind, more = line["name"].removeprefix("partitions_"), {"partitions": frozenset(_tps(line))}
            case "records_consumed" if line["count"]:
                batch, polled_ms = batch + 1, time_ms
                kind, more = "planned", {"batch": batch, "ranges": tuple(_ranges(line["partitions"]))}
            case "offsets_committed" if line["success"] and line["offsets"]:
                offsets = {TopicPartition(one["topic"], one["partition"]): one["offset"] for one in line["offsets"]}
                time_ms, kind, more = polled_ms, "committed", {"batch": batch, "offsets": offsets}
            case "shutdown_complete":
                kind = "stopped"
            case _:
                continue
        yield Event(time_ms, kind, group, member, generation, f"{said.output}:{number}", **more)


def generation_at(stored: Iterable[Stored], client_id: str, time_ms: float, otherwise: int) -> int:
    """The number of the last stored generation with that client up to a time."""
    found = [
        generation.generation
        for generation in stored
        if generation.time_ms <= time_ms + TICK_MS and any(client_id in names for names in generation.names.values())
    ]
    return otherwise if not found or found[-1] is None else found[-1]


def _ranges(polled: Iterable[Mapping[str, Any]]) -> Iterator[OffsetRange]:
    for one in polled:
        if one["count"]:
            yield OffsetRange(TopicPartition(one["topic"], one["partition"]), one["minOffset"], one["maxOffset"] + 1)
