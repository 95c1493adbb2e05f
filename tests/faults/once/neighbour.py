"""Kafka's own consumer as a neighbour in a group of queries, and which records it has committed, place by place."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from faults.checkpoint import TP
from faults.once.shapes import Place
from faults.written import whole_lines
from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing.download import jars

VERIFIABLE = "org.apache.kafka.tools.VerifiableConsumer"


class Readings:
    """What a VerifiableConsumer has read, by the lines that it prints.

    A record counts as committed if a commit that has succeeded is above it, since its partition was assigned. One that
    was read, and whose partition was taken away, or whose consumer was killed, before that is in doubt.
    """

    def __init__(self) -> None:
        self._read: dict[TP, set[int]] = defaultdict(set)
        self.delivered: list[Place] = []
        self.in_doubt: list[Place] = []

    def said(self, line: str) -> None:
        """A line of its output."""
        try:
            found = json.loads(line)
        except ValueError:
            return
        match found.get("name"):
            case "record_data":
                self._read[found["topic"], found["partition"]].add(found["offset"])
            case "offsets_committed" if found.get("success"):
                for one in found["offsets"]:
                    self._commit((one["topic"], one["partition"]), one["offset"])
            case "partitions_revoked":
                for one in found["partitions"]:
                    self.give_up((one["topic"], one["partition"]))

    def give_up(self, *tps: TP) -> None:
        """Nobody knows of the commit of what was read of these partitions, or of all."""
        for tp in tps or list(self._read):
            self.in_doubt += [(*tp, offset) for offset in sorted(self._read.pop(tp, ()))]

    def _commit(self, tp: TP, end: int) -> None:
        done = {offset for offset in self._read[tp] if offset < end}
        self._read[tp] -= done
        self.delivered += [(*tp, offset) for offset in sorted(done)]


class JavaNeighbour:
    """A consumer in a process of its own."""

    def __init__(self, servers: str, version: str, topic: str, group: str, session_s: float, output: Path) -> None:
        self._output = output
        command = [
            java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
            "-cp", str(jars("kafka-tools", version) / "*"), VERIFIABLE, "--bootstrap-server", servers,
            "--topic", topic, "--group-id", group, "--reset-policy", "earliest", "--verbose",
            "--session-timeout", str(round(session_s * 1000)),
            "--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor",
        ]  # fmt: skip
        with output.open("wb") as file, output.with_suffix(".err").open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=errors)

    def end(self, number: signal.Signals) -> None:
        """Send a signal, and wait for the end."""
        self.process.send_signal(number)
        self.process.wait(60)

    def reads(self) -> bool:
        """Whether it has read, or has ended."""
        return self.process.poll() is not None or b"record_data" in self._output.read_bytes()

    def delivered(self) -> list[Place]:
        """Places of the records that it has committed."""
        return self._readings().delivered

    def in_doubt(self) -> list[Place]:
        """Places of those that it has read, and perhaps committed."""
        return self._readings().in_doubt

    def _readings(self) -> Any:
        readings = Readings()
        for line in whole_lines(self._output):
            readings.said(line)
        readings.give_up()
        return readings
