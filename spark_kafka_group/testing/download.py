"""Kafka from Maven Central, through the Ivy that pyspark ships; downloaded once per machine and user.

The first start of a version leaves its preparations to later starts, which take half the time: a data directory as
Kafka's own tool formats it, and an archive of the classes that the JVM has loaded (CDS).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from spark_kafka_group.spark.installation import java, version_of

VERSION = "4.4.0"
CACHE = "SPARK_KAFKA_GROUP_CACHE"
"""Environment variable: where downloads are kept, instead of ~/.cache/spark-kafka-group."""

CALLED = {"kafka_2.13": "Kafka (44 MB)", "kafka-tools": "Kafka's command-line tools (43 MB)"}
ATTEMPTS, PAUSE_S, ATTEMPT_S = 4, 5.0, 600.0
LOOK_EVERY_S, SAID_EVERY_S = 0.5, 10.0
"""How often a download's size is looked up, for a terminal; and written elsewhere, as into a log."""


def cache_directory() -> Path:
    """Where downloads and state are kept."""
    return Path(os.environ.get(CACHE) or Path("~/.cache/spark-kafka-group").expanduser())


def writable(folder: Path) -> Path:
    """`folder`, made if it is not there. Raises RuntimeError when it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise RuntimeError(
            f"the folder {folder} cannot be written ({error.strerror}): name another one in the environment variable "
            f"{CACHE}"
        ) from error
    return folder


def jars(module: str, version: str = VERSION) -> Path:
    """The folder with a Kafka module's jars and those it needs, downloaded if it is not there yet. `module`:
    ``kafka_2.13``, the broker, or ``kafka-tools``, the console tools. Raises RuntimeError when the download fails, with
    the end of Ivy's output."""

    def retrieve_all(parts: Path) -> None:
        retrieve("org.apache.kafka", module, version, parts)

    doing = f"downloading {CALLED[module]} {version} into {cache_directory()}, once"
    return once(cache_directory() / f"kafka-{version}" / module, retrieve_all, doing)


def once(target: Path, make: Callable[[Path], None], doing: str) -> Path:
    """`target`, made by the first process on this machine that needs it. `make`: called with an empty folder; its
    ``lib`` becomes `target` afterwards. `doing`: line for stderr before that: it takes a while. Raises RuntimeError
    when the folder of `target` cannot be written."""
    if target.exists():
        return target
    with (writable(target.parent) / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run by several processes download once
        if not target.exists():
            # Renamed when whole, so that a download that broke is never taken for one.
            print(doing, file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as parts:
                make(Path(parts))
                (Path(parts) / "lib").rename(target)
    return target


def logging_jars() -> list[Path]:
    """SLF4J and Log4j as pyspark ships them: Kafka's dependencies bind SLF4J to nothing, and its log would be empty.
    They are copies in the cache, where they stay when an environment goes."""
    names = ("slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core")
    shipped = [_pyspark_jar(f"{name}-[0-9]*.jar") for name in names]

    def copy_all(parts: Path) -> None:
        (parts / "lib").mkdir()
        for jar in shipped:
            shutil.copy2(jar, parts / "lib")

    digest = hashlib.sha256("\n".join(jar.name for jar in shipped).encode()).hexdigest()[:12]
    folder = once(cache_directory() / f"logging-{digest}", copy_all, "copying logging libraries of pyspark, once")
    return [folder / jar.name for jar in shipped]


def _pyspark_jar(pattern: str) -> Path:
    import pyspark

    folder = Path(pyspark.__file__).parent / "jars"
    found = sorted(folder.glob(pattern))
    if not found:
        raise RuntimeError(
            f"no {pattern} in {folder}: install pyspark itself, not pyspark-client, as Kafka starts with its jars"
        )
    return found[-1]


def retrieve(organisation: str, module: str, version: str, parts: Path, *more: str, attempts: int = ATTEMPTS) -> None:
    """Download a module and its dependencies into ``lib`` in the folder `parts`; `more` are options of Ivy. Raises
    RuntimeError when the download fails, with the end of Ivy's output."""
    command = [
        java(), "-jar", str(_pyspark_jar("ivy-*.jar")),
        "-dependency", organisation, module, version, "-confs", "default", *more,
        "-cache", str(parts / "ivy"), "-retrieve", str(parts / "lib" / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    for attempt in range(attempts):
        try:
            code, output = watched(command, parts / "ivy")
        except subprocess.TimeoutExpired:
            said = f"nothing came in {ATTEMPT_S:.0f} s"
        else:
            if code == 0 and any((parts / "lib").glob(f"{module}-{version}*.jar")):
                return
            said = output[-2000:]
        if attempt < attempts - 1:
            time.sleep(PAUSE_S * 2**attempt)
    raise RuntimeError(f"downloading {module} {version} failed:\n{said}")


def watched(command: list[str], folder: Path) -> tuple[int, str]:
    """Run a download; returns its exit code and output. Meanwhile stderr has what has come into `folder`."""
    started = shown = time.monotonic()
    terminal = sys.stderr.isatty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            while True:
                try:
                    output = process.communicate(timeout=LOOK_EVERY_S)[0]
                    return process.returncode, output
                except subprocess.TimeoutExpired:
                    now = time.monotonic()
                    if now > started + ATTEMPT_S:
                        raise
                    if terminal or now > shown + SAID_EVERY_S:
                        shown = now
                        megabytes = f"  {_bytes_in(folder) / 1e6:.0f} MB after {now - started:.0f} s"
                        print(megabytes, end="\r" if terminal else "\n", file=sys.stderr, flush=True)
        finally:
            process.kill()


def _bytes_in(folder: Path) -> int:
    sizes = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):  # a part that has just been renamed
            sizes += file.stat().st_size
    return sizes


ARCHIVE, DATA = "classes.jsa", "data"
ANY_JVM = "-XX:+IgnoreUnrecognizedVMOptions"


def prepared_folder(version: str, start: Callable[[Path], None]) -> Path:
    """The folder with both; `start` makes it now, in the folder that it is given, if this is the first start. Raises
    RuntimeError when Kafka cannot be downloaded or started."""
    # An archive is for one JVM and the very same jars.
    jars = "\n".join(map(str, [version_of(java()), *logging_jars()]))
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
