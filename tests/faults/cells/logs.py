"""Logs that lose their ends, as a broker without replicas does that loses its power."""

from __future__ import annotations

import signal
from itertools import count

from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from support.damage import cut_off

from faults.cells.registry import BROKER, Cell, add
from faults.evidence import TP, Acknowledged
from faults.load import identity
from faults.running import Query
from faults.scene import Scene

GOES_ON = {"failOnDataLoss": "false"}
LOST = 60
"""Records that each partition loses, about: logs are cut between two record batches."""
_numbers = count()


def write(scene: Scene, counts: dict[int, int]) -> None:
    """Write so many records to partitions, as one more producer."""
    assert scene.load is not None
    name = f"after{next(_numbers)}"
    producer = KafkaProducer(bootstrap_servers=scene.kafka.bootstrap_servers, acks="all", enable_idempotence=False)
    try:
        sent = [
            (record := identity(name, scene.topic, p, n), producer.send(scene.topic, record.encode(), partition=p))
            for p, wanted in counts.items()
            for n in range(wanted)
        ]
        scene.load.sent += len(sent)
        producer.flush()
        for record, future in sent:
            answer = future.get(timeout=30)
            scene.load.acknowledged.append(Acknowledged(record, answer.topic, answer.partition, answer.offset))
    finally:
        producer.close()


def quiet(scene: Scene) -> dict[TP, int]:
    """Stop the load until the query has read all there is; returns the ends of the logs."""
    assert scene.load is not None
    scene.load.spread(scene.topic, 0)
    scene.wait(lambda: scene.load is not None and scene.load.pending == 0 and scene.ended() == scene.ends())
    return scene.ends()


def losses_said(query: Query) -> list[str]:
    """Lines of all its processes' logs about records that are gone."""
    logs = sorted((query.directory / "logs").glob("*.log"))
    return [line for log in logs for line in log.read_text(errors="replace").splitlines() if "KAFKA_DATA_LOSS" in line]


def configure(scene: Scene, **configs: str) -> None:
    """Change configs of the topic; `retention_ms` is retention.ms."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    scene.kafka.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, scene.topic, given)])


def loses(name: str, what: str, grown: float) -> Cell:
    """A cell: logs lose their ends, and grow again by `grown` times what they have lost, before the query looks."""

    def happen(scene: Scene) -> None:
        assert scene.load is not None
        partitions = scene.topics[scene.topic]
        ends = quiet(scene)
        with scene.fault(f"each log loses its end, and {what}", may_end=True):
            query = scene.query
            query.program.signal_all(signal.SIGSTOP)
            (node,) = scene.kafka.nodes
            node.kill()
            left = {}
            for p in range(partitions):
                segments = sorted((node.data / f"{scene.topic}-{p}").glob("*.log"))
                left[p] = cut_off(segments[-1], ends[scene.topic, p] - LOST)
                scene.gone |= {
                    a.identity for a in scene.load.acknowledged
                    if a.partition == p and left[p] <= a.offset < ends[scene.topic, p]
                }  # fmt: skip
            node.start()
            scene.kafka.wait_until_ready()
            write(scene, {p: round((ends[scene.topic, p] - at) * grown) for p, at in left.items()})
            query.program.signal_all(signal.SIGCONT)
            if grown < 1:
                scene.pause(3)
            scene.load.spread(scene.topic, partitions)

    return Cell(BROKER, name, f"each log loses its end, and {what}", happen, options=GOES_ON, at_once=5)


add(loses("log-shorter", "is shorter than the query's position when it looks next", 0))
add(loses("log-as-long", "is as long again when the query looks next", 1))
add(loses("log-longer", "is longer when the query looks next", 2))
