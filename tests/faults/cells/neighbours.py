"""Other members of the group: consumers of every client, which join, and leave or are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from faults import PROGRAMS
from faults.cells.registry import GROUPKAFKA, Cell, add
from faults.scene import Scene
from faults.written import whole_lines
from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing.download import jars

NEIGHBOUR = "neighbour"
VERIFIABLE = "org.apache.kafka.tools.VerifiableConsumer"
JOINED = 200
"""Records that a neighbour reads before it ends."""
OF_THE_BROKER = {
    "current generation": "the broker stores epochs of members, and no generations, where a member speaks KIP-848",
}


class Said:
    """The records that a consumer says it has read."""

    def __init__(self, output: Path) -> None:
        self.output = output

    def delivered(self) -> list[str]:
        """Records that it has committed."""
        return [value for values, certain in self._polls() if certain for value in values]

    def in_doubt(self) -> list[str]:
        """Records that it has read, while it did not say that they are committed."""
        return [value for values, certain in self._polls() if not certain for value in values]

    def _polls(self) -> Iterator[tuple[list[str], bool]]:
        """The values of each poll, and whether they are committed."""
        read: list[str] = []
        for line in whole_lines(self.output):
            said = _parsed(line)
            if "read" in said:
                yield read, False
                read = said["read"]
            elif said.get("name") == "record_data":
                read.append(said["value"])
            elif said.get("committed") or (said.get("name") == "offsets_committed" and said.get("success")):
                yield read, True
                read = []
        yield read, False


class Neighbour(Said):
    """A consumer in a process of its own, and the records that it says it has read."""

    def __init__(self, command: list[str], output: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(output)
        self.killed = False
        with output.open("wb") as file, output.with_suffix(".err").open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=errors)

    def end(self, number: signal.Signals) -> None:
        """Send a signal, and wait for the end."""
        self.killed = number == signal.SIGKILL
        self.process.send_signal(number)
        self.process.wait(60)

    def count(self) -> int:
        """Records that it has read so far; an error if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"a neighbour has ended: {self.output.with_suffix('.err').read_text()[-1000:]}")
        return len(self.delivered())


def _parsed(line: str) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def of_python(client: str, scene: Scene) -> list[str]:
    """The command of a Python client."""
    return [
        sys.executable, str(PROGRAMS / "neighbour.py"), "--client", client,
        "--servers", scene.kafka.bootstrap_servers, "--topic", scene.topic, "--group", scene.group,
        "--session-ms", str(round(scene.session_s * 1000)),
    ]  # fmt: skip


def of_java(protocol: str, scene: Scene) -> list[str]:
    """The command of Kafka's own VerifiableConsumer."""
    classic = [
        "--session-timeout", str(round(scene.session_s * 1000)),
        "--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor",
    ]  # fmt: skip
    return [
        java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
        "-cp", str(jars("kafka-tools", scene.kafka.version) / "*"), VERIFIABLE,
        "--bootstrap-server", scene.kafka.bootstrap_servers, "--topic", scene.topic, "--group-id", scene.group,
        "--reset-policy", "earliest", "--verbose", "--group-protocol", protocol,
        *(classic if protocol == "classic" else []),
    ]  # fmt: skip


CLIENTS = {
    "java": lambda scene: of_java("classic", scene),
    "java-consumer-protocol": lambda scene: of_java("consumer", scene),
    "confluent-kafka": lambda scene: of_python("confluent-kafka", scene),
    "kafka-python": lambda scene: of_python("kafka-python", scene),
    "aiokafka": lambda scene: of_python("aiokafka", scene),
}


def joined(client: str, number: signal.Signals) -> Cell:
    """A cell: consumers of this client join one after the other, and are ended by a signal."""

    def happen(scene: Scene) -> None:
        scene.pause()
        output = scene.directory / f"neighbour{len(scene.neighbours)}.jsonl"
        with scene.fault(f"{client} joins, and is ended by {number.name}"):
            neighbour = Neighbour(CLIENTS[client](scene), output)
            scene.closing.callback(neighbour.process.kill)
            scene.neighbours.append(neighbour)
            scene.wait(lambda: neighbour.count() >= JOINED, within=90)
            scene.pause()
            neighbour.end(number)

    how = "leave" if number == signal.SIGTERM else "kill"
    what = f"a consumer of {client} joins and reads, then {'leaves' if how == 'leave' else 'is killed'}"
    exempt = OF_THE_BROKER if client == "java-consumer-protocol" else {}
    return Cell(NEIGHBOUR, f"{client}-{how}", what, happen, sources=(GROUPKAFKA,), exempt=exempt, session_s=6.0)


for each in CLIENTS:
    add(joined(each, signal.SIGTERM))
    add(joined(each, signal.SIGKILL))
