"""The first start of a Kafka version on this machine leaves its preparations to later starts, which take half the time.

These are a data directory as Kafka's own tool formats it, and an archive of the classes that the JVM has loaded (CDS).
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from spark_kafka_group.testing.download import cache_directory, java_version, logging_jars, once

ARCHIVE, DATA = "classes.jsa", "data"
ANY_JVM = "-XX:+IgnoreUnrecognizedVMOptions"


def prepared_folder(version: str, start: Callable[[Path], None]) -> Path:
    """The folder with both; `start` makes it now, in the folder that it is given, if this is the first start.

    Raises
    ------
    RuntimeError
        When Kafka cannot be downloaded or started.
    """
    # An archive is for one JVM and the very same jars.
    jars = "\n".join(map(str, [java_version(), *logging_jars()]))
    name = f"started-{hashlib.sha256(jars.encode()).hexdigest()[:12]}"
    return once(cache_directory() / f"kafka-{version}" / name, start, f"preparing starts of Kafka {version}, once")


def options(started: Path) -> list[str]:
    """Options of a JVM that starts with these classes."""
    archive = started / ARCHIVE
    return [ANY_JVM, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []


def copy_data(started: Path, to: Path, cluster_id: str, node: int) -> None:
    """Make a node's data directory."""
    own = {"cluster.id": cluster_id, "node.id": str(node), "directory.id": new_id()}
    shutil.copytree(started / DATA, to)
    meta = to / "meta.properties"
    pairs = [line.partition("=")[::2] for line in meta.read_text().splitlines() if "=" in line]
    meta.write_text("".join(f"{name}={own.get(name, value)}\n" for name, value in pairs))


def new_id() -> str:
    """As Kafka makes them; its first character must not be a "-", or its tool takes it for an option."""
    return base64.urlsafe_b64encode(b"k" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
