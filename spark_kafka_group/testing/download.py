"""Kafka from Maven Central, through the Ivy that pyspark ships; downloaded once per machine and user."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

VERSION = "4.3.1"
CACHE = "SPARK_KAFKA_GROUP_CACHE"
"""Environment variable: where downloads are kept, instead of ~/.cache/spark-kafka-group."""

ATTEMPTS, PAUSE_S = 4, 5.0


def cache_directory() -> Path:
    """Where downloads and state are kept."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "spark-kafka-group")


def java() -> str:
    """The java command.

    Raises
    ------
    RuntimeError
        When there is none, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not command or not Path(command).exists():
        raise RuntimeError("Kafka and Spark need Java 17 or newer: install it, or set JAVA_HOME")
    told = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < 17:
        raise RuntimeError(f"Kafka and Spark need Java 17 or newer, but {command} says: {told.splitlines()[:1]}")
    return command


def jars(module: str, version: str = VERSION) -> Path:
    """The folder with a Kafka module's jars and those it needs, downloaded if it is not there yet.

    Parameters
    ----------
    module
        ``kafka_2.13``, the broker, or ``kafka-tools``, the console tools.

    Raises
    ------
    RuntimeError
        When the download fails, with the end of what Ivy said.
    """
    target = cache_directory() / f"kafka-{version}" / module
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{module}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run by several processes download once
        if not target.exists():
            # Renamed when whole, so that a download that broke is never taken for one.
            with tempfile.TemporaryDirectory(dir=target.parent) as parts:
                _retrieve(module, version, Path(parts))
                (Path(parts) / "lib").rename(target)
    return target


def _retrieve(module: str, version: str, parts: Path) -> None:
    import pyspark

    ivy = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))[-1]
    command = [
        java(), "-jar", str(ivy), "-dependency", "org.apache.kafka", module, version, "-confs", "default",
        "-cache", str(parts / "ivy"), "-retrieve", str(parts / "lib" / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    for attempt in range(ATTEMPTS):
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        if told.returncode == 0 and any((parts / "lib").glob(f"{module}-{version}*.jar")):
            return
        if attempt < ATTEMPTS - 1:
            time.sleep(PAUSE_S * 2**attempt)
    raise RuntimeError(f"downloading {module} {version} failed:\n{(told.stdout + told.stderr)[-2000:]}")
