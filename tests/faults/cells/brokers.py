"""Faults of brokers: one of three, or all."""

from __future__ import annotations

import time

from kafka.structs import TopicPartition

from faults.cells.registry import BROKER, MINUTES, cell
from faults.evidence import GROUPKAFKA
from faults.scene import Scene
from spark_kafka_group.offsets_topic.decoding import OFFSETS_TOPIC, coordinator_partition
from spark_kafka_group.testing import Node
from spark_kafka_group.testing.node import free_ports

PAUSED_S = 20.0


def coordinator(scene: Scene) -> Node:
    """The node that coordinates the group."""
    return scene.kafka.node(scene.kafka.leader(OFFSETS_TOPIC, coordinator_partition(scene.group, 5)) - 1)


def leader(scene: Scene) -> Node:
    """The node that leads one of the topic's partitions."""
    return scene.kafka.node(scene.kafka.leader(scene.topic, scene.rng.randrange(scene.topics[scene.topic])) - 1)


def controller(scene: Scene) -> Node:
    """The node that leads the metadata quorum."""
    quorum = scene.kafka.admin.describe_metadata_quorum()
    return scene.kafka.node(quorum["topics"][0]["partitions"][0]["leader_id"] - 1)


def killed(scene: Scene, node: Node, what: str, away_s: float = 5.0) -> None:
    """Kill a node, and start it again after a while."""
    with scene.fault(f"SIGKILL of the {what} for {away_s:.0f} s"):
        node.kill()
        time.sleep(away_s)  # the fault itself
        node.start()
        scene.kafka.wait_until_ready()


def paused(scene: Scene, node: Node, what: str) -> None:
    """Stop a node's process, and let it go on after a while."""
    with scene.fault(f"SIGSTOP of the {what} for {PAUSED_S:.0f} s"):
        node.pause()
        time.sleep(PAUSED_S)  # the fault itself
        node.resume()
        scene.kafka.wait_until_ready()


@cell(BROKER, "SIGKILL of a partition's leader, which is away for 5 s", nodes=3)
def broker_leader_kill(scene: Scene) -> None:
    scene.pause()
    killed(scene, leader(scene), "leader")


@cell(BROKER, "SIGKILL of the group's coordinator, which is away for 5 s", nodes=3, sources=(GROUPKAFKA,))
def broker_coordinator_kill(scene: Scene) -> None:
    scene.pause()
    killed(scene, coordinator(scene), "coordinator")


@cell(BROKER, "SIGKILL of the controller, which is away for 5 s", nodes=3)
def broker_controller_kill(scene: Scene) -> None:
    scene.pause()
    killed(scene, controller(scene), "controller")


@cell(BROKER, "SIGKILL of the only broker, which is away for 5 s")
def broker_only_kill(scene: Scene) -> None:
    scene.pause()
    killed(scene, scene.kafka.node(0), "only broker")


@cell(BROKER, "SIGSTOP of a partition's leader for 20 s", nodes=3)
def broker_leader_pause(scene: Scene) -> None:
    scene.pause()
    paused(scene, leader(scene), "leader")


@cell(BROKER, "SIGSTOP of the group's coordinator for 20 s", nodes=3, sources=(GROUPKAFKA,))
def broker_coordinator_pause(scene: Scene) -> None:
    scene.pause()
    paused(scene, coordinator(scene), "coordinator")


@cell(BROKER, "a rolling restart: each broker is shut down in order and started again", nodes=3, count=MINUTES)
def broker_rolling_restart(scene: Scene) -> None:
    with scene.fault("rolling restart of three brokers"):
        for node in scene.kafka.nodes:
            node.stop()
            node.start()
            scene.kafka.wait_until_ready()


@cell(BROKER, "all brokers are killed, and away for five minutes", nodes=3, count=MINUTES, at_once=1, per_second=100)
def broker_all_away(scene: Scene) -> None:
    all_away(scene, 300)


@cell(BROKER, "all brokers are killed, and away for 20 s", nodes=3)
def broker_all_away_shortly(scene: Scene) -> None:
    all_away(scene, 20)


def all_away(scene: Scene, away_s: float) -> None:
    """Kill all nodes at once, and start them again after a while."""
    with scene.fault(f"SIGKILL of all brokers for {away_s:.0f} s"):
        for node in scene.kafka.nodes:
            node.kill()
        time.sleep(away_s)  # the fault itself
        for node in scene.kafka.nodes:
            node.start()
        scene.kafka.wait_until_ready()


@cell(BROKER, "all partitions get other replicas and other leaders", nodes=3, replication=1)
def broker_reassignment(scene: Scene) -> None:
    scene.pause()
    with scene.fault("reassignment of all partitions"):
        tps = [TopicPartition(scene.topic, p) for p in range(scene.topics[scene.topic])]
        wanted = {tp: 1 + (scene.kafka.leader(*tp) % len(scene.kafka.nodes)) for tp in tps}
        scene.kafka.admin.alter_partition_reassignments({tp: [node] for tp, node in wanted.items()})
        scene.wait(lambda: all(scene.kafka.leader(*tp) == node for tp, node in wanted.items()))


@cell(BROKER, "a broker of three is killed, and comes back at another port", nodes=3)
def broker_elsewhere(scene: Scene) -> None:
    node = scene.kafka.node(1 + len(scene.faults) % 2)  # the first one stays, for programs that start
    with scene.fault("a broker comes back at another port"):
        node.kill()
        (port,) = free_ports(1)
        for name in ("listeners", "advertised.listeners"):
            node._properties[name] = node._properties[name].replace(f":{node._port}", f":{port}")
        node._port = scene.kafka.ports[node.number - 1] = port
        node.configure()
        node.start()
        scene.kafka.wait_until_ready()
        scene.wait(lambda: leads_again(scene, node))


def leads_again(scene: Scene, node: Node) -> bool:
    """Elect preferred leaders, so that clients need the node; whether it leads now."""
    partitions = list(range(scene.topics[scene.topic]))
    scene.kafka.admin.elect_leaders(0, {scene.topic: partitions}, raise_errors=False)
    return node.number in {scene.kafka.leader(scene.topic, p) for p in partitions}
