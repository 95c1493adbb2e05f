"""Faults of the network: proxies that delay, throttle and cut; links of hosts that go down without a word."""

from __future__ import annotations

import contextlib
import functools
import random
import select
import shutil
import socket
import socketserver
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from support.relay import Relay

from faults.cells.registry import BOTH, Cell, add
from faults.evidence import GROUPKAFKA
from faults.hosts.brokers import HOSTS, Brokers
from faults.hosts.network import TESTS, Network
from faults.scene import Scene
from spark_kafka_group.offsets_topic.decoding import OFFSETS_TOPIC
from spark_kafka_group.testing import KafkaCluster, Node, wait_until

NETWORK = "network"
LASTS_S = 10.0
LISTENER = "PROXIED"


# Proxies


class Rules:
    """What proxies do to bytes that pass; all of them ask the same."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self.mend()

    def mend(self) -> None:
        """Let everything pass."""
        self.delay_s, self.bytes_per_s, self.silent = 0.0, 0.0, False
        self._cut: tuple[float, float] | None = None

    def cut_every(self, least_s: float, most_s: float) -> None:
        """Connections live so long at most."""
        self._cut = least_s, most_s

    def life_s(self) -> float | None:
        """How long a connection lives from now on."""
        return None if self._cut is None else self._rng.uniform(*self._cut)


class Proxy(Relay):
    """Between clients and one broker."""

    def __init__(self, rules: Rules, port: int) -> None:
        super().__init__(Handler)
        self.rules, self.port = rules, port


class Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        proxy = cast(Proxy, self.server)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", proxy.port)) as upstream:
            passed(self.request, upstream, proxy.rules)


def passed(client: socket.socket, upstream: socket.socket, rules: Rules) -> None:
    """Both ways, as the rules say, until an end closes or the connection is cut."""
    ends: float | None = None
    while True:
        life = rules.life_s()
        if life is None:
            ends = None
        elif ends is None:
            ends = time.monotonic() + life
        elif time.monotonic() > ends:
            return
        for ready in select.select([client, upstream], [], [], 0.05)[0]:
            data = ready.recv(1 << 16)
            if not data:
                return
            pause = rules.delay_s + (len(data) / rules.bytes_per_s if rules.bytes_per_s else 0)
            if pause:
                time.sleep(pause)  # the fault itself
            while rules.silent:
                time.sleep(0.05)  # bytes stay where they are
            (client if ready is upstream else upstream).sendall(data)


@contextlib.contextmanager
def proxied(nodes: int = 3, **more: Any) -> Iterator[KafkaCluster]:
    """Brokers with a listener that leads through proxies; the load goes by the other one."""
    cluster = KafkaCluster(nodes, listeners={LISTENER: "PLAINTEXT"}, **more)
    rules = Rules()
    with contextlib.ExitStack() as stack:
        addresses = []
        for node, address in zip(cluster.nodes, cluster.servers_of(LISTENER).split(","), strict=True):
            proxy = stack.enter_context(Proxy(rules, int(address.rpartition(":")[2])))
            addresses.append(f"127.0.0.1:{proxy.server_address[1]}")
            advertised = node._properties["advertised.listeners"]
            node._properties["advertised.listeners"] = advertised.replace(address, addresses[-1])
        cluster.proxies = ",".join(addresses)  # type: ignore[attr-defined]
        cluster.rules = rules  # type: ignore[attr-defined]
        yield stack.enter_context(cluster)


def by_proxies(scene: Scene) -> None:
    """The query reaches brokers through proxies."""
    kafka = cast(Any, scene.kafka)
    scene.servers, scene.room["rules"] = kafka.proxies, kafka.rules


def proxy_cell(name: str, what: str, rule: Callable[[Rules], None], lasts_s: float = LASTS_S) -> None:
    def happen(scene: Scene) -> None:
        rules: Rules = scene.room["rules"]
        scene.pause()
        with scene.fault(f"{what} for {lasts_s:.0f} s"):
            rule(rules)
            time.sleep(lasts_s)  # the fault itself
            rules.mend()

    add(Cell(NETWORK, name, f"{what} for {lasts_s:.0f} s", happen, brokers=proxied, prepare=by_proxies))


def silent(rules: Rules) -> None:
    rules.silent = True


def delayed(rules: Rules) -> None:
    rules.delay_s = 0.2


def throttled(rules: Rules) -> None:
    rules.bytes_per_s = 30_000


proxy_cell("proxy-delays", "all proxies delay each piece by 200 ms", delayed)
proxy_cell("proxy-throttles", "all proxies pass 30 kB/s a connection", throttled)
proxy_cell("proxy-cuts", "all proxies cut each connection every 0.5 to 1.5 s", lambda rules: rules.cut_every(0.5, 1.5))
proxy_cell("proxy-silent", "all proxies pass nothing, and say nothing,", silent, 7.0)
proxy_cell("proxy-silent-beyond-the-session", "all proxies pass nothing, and say nothing,", silent, 20.0)


# Hosts


@dataclass(frozen=True)
class NodeOfAHost:
    """The broker of a host, which is killed and started as a node of this machine is."""

    kill: Callable[[], None]
    start: Callable[[], None]


class Hosts(KafkaCluster):
    """Brokers on hosts of their own, asked as those of a cluster on this machine."""

    def __init__(self, network: Network, brokers: Brokers) -> None:
        super().__init__(3)
        self.network = network
        self.hosts = brokers

    @property
    def bootstrap_servers(self) -> str:
        return self.hosts.bootstrap_servers

    def start(self) -> Hosts:
        return self

    def node(self, index: int) -> Node:
        host = HOSTS[index]
        return cast(Node, NodeOfAHost(lambda: self.hosts.kill(host), lambda: self.hosts.start(host)))

    def wait_until_ready(self) -> None:
        self._close()  # its client would wait out its backoff for a node that was down
        wait_until(lambda: self.hosts.all_serve() and self._registered() >= {1, 2, 3}, within=90)

    def stop(self) -> None:
        self._close()
        shutil.rmtree(self.directory, ignore_errors=True)


EXECUTORS = "executors"


@contextlib.contextmanager
def on_hosts(*others: str) -> Iterator[Hosts]:
    """Three brokers on hosts of their own, and `others` without anything; the load is on this one."""
    why_not = Network.why_not()
    if why_not:
        pytest.skip(why_not)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(*HOSTS, *others))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers = stack.enter_context(Brokers(network, folder))
        yield stack.enter_context(Hosts(network, brokers))


def workers_apart(scene: Scene) -> None:
    """Python workers run on the host of executors; the reader process stays with the driver."""
    hosts = cast(Hosts, scene.kafka)
    python = scene.directory / "python"
    within = " ".join(hosts.network.within(EXECUTORS))
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *pyspark.daemon*|*pyspark/daemon*) exec {within} {sys.executable} "$@";; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    scene.environment["PYSPARK_PYTHON"] = str(python)


def host_cell(
    name: str,
    what: str,
    host: Callable[[Scene], str],
    lasts_s: float,
    sources: tuple[str, ...] = BOTH,
) -> None:
    def happen(scene: Scene) -> None:
        hosts = cast(Hosts, scene.kafka)
        scene.pause()
        cut = host(scene)
        with scene.fault(f"{what} cut off for {lasts_s:.0f} s"):
            hosts.network.cut(cut)
            try:
                time.sleep(lasts_s)  # the fault itself
            finally:
                hosts.network.mend(cut)

    told = f"the link of {what} is down, without a word, for {lasts_s:.0f} s"
    hosts = functools.partial(on_hosts, EXECUTORS)
    add(
        Cell(
            NETWORK, name, told, happen, sources=sources, nodes=3, brokers=hosts,
            prepare=workers_apart,
        )
    )  # fmt: skip


def parted_cell(name: str, what: str, host: str, lasts_s: float) -> None:
    def happen(scene: Scene) -> None:
        hosts = cast(Hosts, scene.kafka)
        scene.pause()
        leader = leading_host(scene)
        with scene.fault(f"a leader unreachable for {what} for {lasts_s:.0f} s"):
            hosts.network.part(leader, host)
            try:
                time.sleep(lasts_s)  # the fault itself
            finally:
                hosts.network.join(leader, host)

    told = f"a leader, which all others reach, is unreachable for {what}, without a word, for {lasts_s:.0f} s"
    hosts = functools.partial(on_hosts, EXECUTORS)
    add(Cell(NETWORK, name, told, happen, nodes=3, brokers=hosts, prepare=workers_apart))


def leading_host(scene: Scene) -> str:
    return HOSTS[scene.kafka.leader(scene.topic, scene.rng.randrange(scene.topics[scene.topic])) - 1]


def coordinating_host(scene: Scene) -> str:
    return HOSTS[scene.kafka.leader(OFFSETS_TOPIC, 0) - 1]


host_cell("host-of-a-leader-cut-off", "the host of a leader", leading_host, 20)
host_cell(
    "host-of-the-coordinator-cut-off", "the host of the coordinator", coordinating_host, 20, sources=(GROUPKAFKA,)
)
host_cell("host-of-the-driver-cut-off", "the host of the driver", lambda scene: TESTS, 8)
host_cell("host-of-the-driver-cut-off-beyond-the-session", "the host of the driver", lambda scene: TESTS, 20)
host_cell("host-of-the-executors-cut-off", "the host of the executors", lambda scene: EXECUTORS, 15)
parted_cell("leader-unreachable-for-the-driver", "the driver", TESTS, 15)
parted_cell("leader-unreachable-for-the-executors", "the executors", EXECUTORS, 15)
