"""Hosts on this machine: a network namespace each, on a bridge in one of its own. A link that is set down says nothing.

Tests, and with them Spark and its query, stay where they are and get a link of their own to the bridge. Addresses of
all are known to all beforehand, so that a host that is gone is silent, and not "unreachable".
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess

TESTS = "tests"
NOBODY = "02:67:6b:00:00:01"
"""The address of a device that no host has."""


class Network:
    """Hosts by name; a context manager. Needs root.

    Attributes
    ----------
    addresses
        Of each host, and of the tests themselves.
    """

    def __init__(self, *hosts: str) -> None:
        self._id = f"gk{os.getpid() % 100_000}"
        self._switch = f"{self._id}-switch"
        subnet = f"10.213.{random.randrange(256)}"
        self._hosts = hosts
        self.addresses = {host: f"{subnet}.{n}" for n, host in enumerate((*hosts, TESTS), start=11)}
        self._macs = {host: f"02:67:6b:00:00:{n:02x}" for n, host in enumerate(self.addresses, start=11)}

    @staticmethod
    def why_not() -> str | None:
        """Why hosts cannot be made here."""
        if os.geteuid() != 0:
            return "network namespaces need root"
        if shutil.which("ip") is None:
            return "network namespaces need the command ip, of iproute2"
        tried = f"gk{os.getpid() % 100_000}-try"
        made = subprocess.run(["ip", "netns", "add", tried], capture_output=True, text=True, check=False)
        subprocess.run(["ip", "netns", "del", tried], capture_output=True, check=False)
        return f"no network namespaces here: {made.stderr.strip()}" if made.returncode else None

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def within(self, host: str) -> list[str]:
        """The beginning of a command that runs on a host."""
        return ["ip", "netns", "exec", f"{self._id}-{host}"]

    def cut(self, host: str) -> None:
        """From now on no packet reaches or leaves `host`, without an RST or ICMP."""
        _ip("-n", self._switch, "link", "set", self._port(host), "down")

    def mend(self, host: str) -> None:
        """As it was before :meth:`cut`."""
        _ip("-n", self._switch, "link", "set", self._port(host), "up")

    def part(self, one: str, other: str) -> None:
        """From now on no packet of these two hosts reaches the other one; both reach all others."""
        for host, peer in ((one, other), (other, one)):
            self._knows(host, peer, NOBODY)

    def join(self, one: str, other: str) -> None:
        """As it was before :meth:`part`."""
        for host, peer in ((one, other), (other, one)):
            self._knows(host, peer, self._macs[peer])

    def _knows(self, host: str, peer: str, mac: str) -> None:
        """Have a host send packets for another one to this device."""
        where, device = self._device(host)
        _ip(*where, "neigh", "replace", self.addresses[peer], "lladdr", mac, "dev", device, "nud", "permanent")

    def _port(self, host: str) -> str:
        return f"{self._id}p{self.addresses[host].rpartition('.')[2]}"

    def _device(self, host: str) -> tuple[list[str], str]:
        """Where a host's device is, and its name."""
        return ([], f"{self._id}eth") if host == TESTS else (["-n", f"{self._id}-{host}"], "eth0")

    def _make(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "br0", "up")
        for host, address in self.addresses.items():
            where, device = self._device(host)
            if where:
                _ip("netns", "add", where[1])
                _ip(*where, "link", "set", "lo", "up")
            mac = ["address", self._macs[host]]
            _ip(*where, "link", "add", device, *mac, "type", "veth", "peer", "name", self._port(host), "netns", self._switch)  # fmt: skip  # noqa: E501
            _ip("-n", self._switch, "link", "set", self._port(host), "master", "br0", "up")
            _ip(*where, "addr", "add", f"{address}/24", "dev", device)
            _ip(*where, "link", "set", device, "up")
            for other in self.addresses:
                if other != host:
                    self._knows(host, other, self._macs[other])

    def _remove(self) -> None:
        for name in (f"{self._id}-{host}" for host in self._hosts):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self._switch], capture_output=True, check=False)  # its links go with it
        subprocess.run(["ip", "link", "del", self._device(TESTS)[1]], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
