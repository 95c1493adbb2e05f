"""Unclean elections: a replica is elected that lacks records which were acknowledged, and read."""

from __future__ import annotations

import re
import signal
from typing import Any

from kafka.structs import TopicPartition
from support import partitions_of

from faults.cells.logs import GOES_ON, LOST, configure, losses_said, quiet, write
from faults.cells.registry import BROKER, Cell, add
from faults.evidence import GROUPKAFKA, TP
from faults.gather import rows_in
from faults.scene import Scene
from faults.topics import records
from spark_kafka_group.testing import Node

STOPS = {"failOnDataLoss": "true"}
PAIR = (1, 2)
"""The nodes that have the topic; the third one keeps the quorum while one of them is away, and then the other."""
BROKERS: dict[str, Any] = {
    "nodes": 3,
    "replication": 2,
    "properties": {"auto.leader.rebalance.enable": "false"},
    # A record that is sent again could be in the log twice.
    "load": {"acks": 1, "enable_idempotence": False, "retries": 0},
}
SAID_WITHIN_S = 60.0


def in_sync(scene: Scene, *nodes: int) -> bool:
    """Whether these replicas are in sync, and no others, of all partitions."""
    found = [set(partition["isr_nodes"]) for partition in partitions_of(scene.kafka, scene.topic)]
    return bool(found) and all(replicas == set(nodes) for replicas in found)


def leaders(scene: Scene) -> set[int]:
    """The nodes that lead the topic's partitions."""
    return {partition["leader_id"] for partition in partitions_of(scene.kafka, scene.topic)}


def on_a_pair(scene: Scene) -> None:
    """One node leads all partitions, another one follows; a leader may go on alone, and a log be elected as it is."""
    configure(scene, min_insync_replicas="1", unclean_leader_election_enable="true")
    tps = [TopicPartition(scene.topic, p) for p in range(scene.topics[scene.topic])]
    scene.kafka.admin.alter_partition_reassignments({tp: list(PAIR) for tp in tps})
    scene.wait(lambda: in_sync(scene, *PAIR))
    scene.kafka.admin.elect_leaders(0, {scene.topic: [tp.partition for tp in tps]}, raise_errors=False)
    scene.wait(lambda: leaders(scene) == {PAIR[0]})


def roles(scene: Scene) -> tuple[int, Node, int, Node]:
    """The leader and the follower, once both are in sync: each its id and its node."""
    scene.wait(lambda: in_sync(scene, *PAIR))
    (leading,) = leaders(scene)
    (following,) = set(PAIR) - {leading}
    return leading, scene.kafka.node(leading - 1), following, scene.kafka.node(following - 1)


def elected(name: str, what: str, grown: float, fails: bool) -> Cell:
    """A cell: a follower is away while records come and are read, and is elected when the leader is killed.

    Parameters
    ----------
    grown
        Records that the new leader has got when the query looks, by those that it never had.
    fails
        Whether failOnDataLoss is true: the query ends, and is started with false, as its error says.
    """
    what = f"an unclean election: each log loses its end, and {what}"

    def happen(scene: Scene) -> None:
        assert scene.load is not None
        query, partitions = scene.query, scene.topics[scene.topic]
        if fails and query.options["failOnDataLoss"] == "false":
            scene.left += query.stop()
            query.options |= STOPS
            query.start()
        leading, leader, following, follower = roles(scene)
        diverges = quiet(scene)
        with scene.fault(what, may_end=fails):
            follower.kill()
            scene.wait(lambda: in_sync(scene, leading))
            write(scene, dict.fromkeys(range(partitions), LOST))
            scene.wait(lambda: scene.ended() == scene.ends())
            scene.gone |= {
                a.identity for a in scene.load.acknowledged if a.offset >= diverges[a.topic, a.partition]
            }  # fmt: skip
            not_read = scene.gone - {row.value for row in rows_in(query.directory / "out")}
            if not_read:
                scene.problems.append(f"{len(not_read)} records were not read before they were lost: {min(not_read)}")
            query.program.signal_all(signal.SIGSTOP)
            leader.kill()
            follower.start()
            scene.kafka.wait_until_ready()
            scene.wait(lambda: leaders(scene) == {following})
            assert scene.ends() == diverges, "the follower had records that it was not to have"
            write(scene, dict.fromkeys(range(partitions), round(LOST * grown)))
            said = len(losses_said(query))
            query.program.signal_all(signal.SIGCONT)
            if fails:
                started_as_it_says(scene)
            elif scene.source == GROUPKAFKA:
                heard(scene, said, diverges)
            else:
                scene.pause(3)
            scene.load.spread(scene.topic, partitions)
            leader.start()
            scene.kafka.wait_until_ready()

    return Cell(
        BROKER,
        name,
        f"{what}; failOnDataLoss={'true, then false' if fails else 'false'}",
        happen,
        sources=(GROUPKAFKA,) if fails else Cell.sources,
        options=STOPS if fails else GOES_ON,
        prepare=on_a_pair,
        **BROKERS,
    )


def heard(scene: Scene, said: int, diverges: dict[TP, int]) -> None:
    """Wait until the query has said of each partition where its log has lost its end."""
    missing = dict(diverges)

    def all_said() -> bool:
        for line in losses_said(scene.query)[said:]:
            for topic, p in list(missing):
                if re.search(rf"{topic}-{p}\b.*\b{missing[topic, p]}\b", line):
                    del missing[topic, p]
        return not missing

    try:
        scene.wait(all_said, within=SAID_WITHIN_S)
    except TimeoutError:
        scene.problems.append(f"the query has not said that these logs have lost their ends: {missing}")


def started_as_it_says(scene: Scene) -> None:
    """The query ends, as records are gone, and is started with the option that its error names."""
    query = scene.query
    query.program.ends(SAID_WITHIN_S)
    last = query.ended_by_itself(wanted=True)
    print(f"     {last}", flush=True)
    if "Set failOnDataLoss=false" not in last:
        scene.problems.append(f"the query ended without a word of the loss: {last}")
    query.options |= GOES_ON
    query.start()


for suffix, stops in (("", False), ("-stops", True)):
    add(elected(f"election-shorter{suffix}", "is shorter than the query's position when it looks next", 0, stops))
    add(elected(f"election-as-long{suffix}", "is as long again when the query looks next", 1, stops))
    add(elected(f"election-longer{suffix}", "is longer when the query looks next", 2, stops))


def election_under_load(scene: Scene) -> None:
    """Nothing is paused: the query may be anywhere in the log that loses its end."""
    assert scene.load is not None
    leading, leader, following, follower = roles(scene)
    with scene.fault("an unclean election under load"):
        follower.kill()
        scene.wait(lambda: in_sync(scene, leading))
        scene.pause(3)
        leader.kill()
        follower.start()
        scene.kafka.wait_until_ready()
        scene.wait(lambda: leaders(scene) == {following})
        leader.start()
        scene.kafka.wait_until_ready()
    acknowledged = list(scene.load.acknowledged)
    log = records(scene.kafka, scene.topics)
    scene.gone |= {a.identity for a in acknowledged if log.get((a.topic, a.partition, a.offset)) != a.identity}


add(
    Cell(
        BROKER,
        "election-under-load",
        "an unclean election: the new leader lacks what was acknowledged while it was away; the query goes on reading; "
        "failOnDataLoss=false",
        election_under_load,
        options=GOES_ON,
        prepare=on_a_pair,
        **BROKERS,
    )
)
