"""Other members of the group: consumers of every client, which join, and leave or are killed."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable

from faults.cells.registry import Cell, add
from faults.evidence import GROUPKAFKA
from faults.neighbours import Neighbour, of_java, of_python
from faults.scene import Scene

NEIGHBOUR = "neighbour"
JOINED = 200
"""Records that a neighbour reads before it ends."""
OF_THE_BROKER = {
    "current generation": "the broker stores epochs of members, and no generations, where a member speaks KIP-848",
}


CLIENTS: dict[str, Callable[..., list[str]]] = {
    "java": of_java,
    "java-consumer-protocol": functools.partial(of_java, protocol="consumer"),
    "confluent-kafka": functools.partial(of_python, "confluent-kafka"),
    "kafka-python": functools.partial(of_python, "kafka-python"),
    "aiokafka": functools.partial(of_python, "aiokafka"),
}


def neighbour(client: str, scene: Scene, output: str) -> Neighbour:
    """A consumer that joins the group."""
    command = CLIENTS[client](scene.kafka, scene.topic, scene.group, scene.session_s)
    found = Neighbour(command, scene.directory / output)
    scene.closing.callback(found.process.kill)
    scene.neighbours.append(found)
    return found


def joined(client: str, number: signal.Signals) -> Cell:
    """A cell: consumers of this client join one after the other, and are ended by a signal."""

    def happen(scene: Scene) -> None:
        scene.pause()
        with scene.fault(f"{client} joins, and is ended by {number.name}"):
            found = neighbour(client, scene, f"neighbour{len(scene.neighbours)}.jsonl")
            scene.wait(lambda: found.count() >= JOINED, within=90)
            scene.pause()
            found.end(number)

    how = "leave" if number == signal.SIGTERM else "kill"
    what = f"a consumer of {client} joins and reads, then {'leaves' if how == 'leave' else 'is killed'}"
    exempt = OF_THE_BROKER if client == "java-consumer-protocol" else {}
    return Cell(NEIGHBOUR, f"{client}-{how}", what, happen, sources=(GROUPKAFKA,), exempt=exempt, session_s=6.0)


for each in CLIENTS:
    add(joined(each, signal.SIGTERM))
    add(joined(each, signal.SIGKILL))
