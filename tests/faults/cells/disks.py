"""Disks that are full: of checkpoint and sink, and of a broker. As root, with a file system each."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.cells.registry import BROKER, EXECUTOR, cell
from faults.scene import Scene
from spark_kafka_group.testing import KafkaCluster

FULL_S = 5.0


@contextlib.contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own, mounted there."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place.mkdir(parents=True, exist_ok=True)
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


@contextlib.contextmanager
def full(place: Path) -> Iterator[None]:
    """The disk has no byte left."""
    filling = place / "filling"
    try:
        with filling.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 65536)
        with filling.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x")
        yield
    finally:
        filling.unlink()


def on_a_small_disk(scene: Scene) -> None:
    """The query's folder has a disk of its own."""
    scene.room["disk"] = scene.closing.enter_context(small_disk(scene.directory / "query0", 300))


@cell(EXECUTOR, "the disk of checkpoint and sink is full for 5 s", count=20, prepare=on_a_small_disk)
def disk_full(scene: Scene) -> None:
    scene.pause()
    with scene.fault("the disk of checkpoint and sink is full for 5 s", may_end=True), full(scene.room["disk"]):
        time.sleep(FULL_S)  # the fault itself


@contextlib.contextmanager
def brokers_on_a_small_disk() -> Iterator[KafkaCluster]:
    """Three brokers, the last of which has a disk of its own."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(small_disk(folder / "node3", 600))
        yield stack.enter_context(KafkaCluster(3, directory=folder))


@cell(
    BROKER,
    "the disk of one of three brokers is full for 5 s",
    nodes=3,
    brokers=brokers_on_a_small_disk,
)
def broker_disk_full(scene: Scene) -> None:
    scene.pause()
    node = scene.kafka.node(2)
    with scene.fault("the disk of a broker is full for 5 s"):
        with full(node.directory):
            time.sleep(FULL_S)  # the fault itself
        if not node.alive:
            node.kill()
            node.start()
        scene.kafka.wait_until_ready()
