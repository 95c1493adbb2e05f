"""Logs that lose their ends: what an unclean election, or a broker without replicas that loses its power, does."""

from __future__ import annotations

import signal
from itertools import count

from damage import cut_off
from kafka import KafkaProducer

from matrix.cells.registry import Cell, add
from matrix.load import Acknowledged, identity
from matrix.scene import Scene

LOG = "log"
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


def loses(name: str, what: str, grown: float) -> Cell:
    """A cell: logs lose their ends, and grow again by `grown` times what they have lost, before the query looks."""

    def happen(scene: Scene) -> None:
        assert scene.load is not None
        partitions = scene.topics[scene.topic]
        scene.load.spread(scene.topic, 0)
        scene.wait(lambda: scene.load is not None and scene.load.pending == 0 and scene.ended() == scene.ends())
        ends = scene.ends()
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

    return Cell(
        LOG, name, f"each log loses its end, and {what}", happen, options={"failOnDataLoss": "false"}, at_once=5
    )


add(loses("log-shorter", "is shorter than the query's position when it looks next", 0))
add(loses("log-as-long", "is as long again when the query looks next", 1))
add(loses("log-longer", "is longer when the query looks next", 2))
