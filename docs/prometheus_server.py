"""A Prometheus of one's own, on a free port of this machine: for tests, and for the picture of the dashboard."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.download import cache_directory, once
from spark_kafka_group.testing.node import free_ports

START_WITHIN_S = 60.0
CONFIG = """\
global:
  scrape_interval: {every}
  evaluation_interval: {every}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: groupkafka
    static_configs: [{{targets: {targets}}}]
"""


def command(name: str, package: str) -> str:
    """A command, from the PATH, or from the Debian package that has it; the package is downloaded, not installed.

    Raises
    ------
    RuntimeError
        When there is neither.
    """
    found = shutil.which(name)
    return found or str(unpacked(package) / "usr/bin" / name)


def unpacked(package: str) -> Path:
    """The folder into which a Debian package is unpacked, once per machine and user.

    Raises
    ------
    RuntimeError
        When apt cannot download it.
    """

    def unpack(parts: Path) -> None:
        for step in (["apt-get", "download", "-qq", package], ["sh", "-c", "dpkg-deb -x *.deb lib"]):
            try:
                done = subprocess.run(step, cwd=parts, capture_output=True, text=True, check=False)
            except FileNotFoundError as error:
                raise RuntimeError(f"no {package}: install it; this machine has no {error.filename}") from error
            if done.returncode:
                raise RuntimeError(f"no {package}: install it, or run apt-get update first: {done.stderr.strip()}")

    doing = f"downloading the Debian package {package} into {cache_directory()}, once"
    return once(cache_directory() / "debian" / package, unpack, doing)


class PrometheusServer:
    """A context manager; its data goes when the block ends.

    Parameters
    ----------
    targets
        Ports on this machine to scrape.
    rules
        A file of alerts.
    every
        Between two scrapes, and between two looks at the alerts: ``1s``.
    """

    def __init__(self, targets: Sequence[int], rules: Path, every: str = "1s") -> None:
        self._command = command("prometheus", "prometheus")
        self._directory = Path(tempfile.mkdtemp(prefix="prometheus-"))
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        addresses = json.dumps([f"127.0.0.1:{target}" for target in targets])
        config = self._directory / "prometheus.yml"
        config.write_text(CONFIG.format(every=every, rules=rules.resolve(), targets=addresses))
        self._arguments = [
            f"--config.file={config}", f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PrometheusServer:
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen([self._command, *self._arguments], stdout=log, stderr=log)
        wait_until(self._ready, within=START_WITHIN_S)
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def value(self, expression: str) -> float | None:
        """The sum of an expression's series now; None without any."""
        series = self.now(expression)
        return sum(float(each["value"][1]) for each in series) if series else None

    def now(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, each with ``metric`` and ``value``.

        Raises
        ------
        ValueError
            With Prometheus' words, when the expression is wrong.
        """
        found: list[dict[str, Any]] = self._get("query", {"query": expression})["result"]
        return found

    def between(self, expression: str, start_s: float, end_s: float, step: str) -> list[dict[str, Any]]:
        """The series of an expression, each with ``metric`` and ``values``; errors as :meth:`now`."""
        times = {"query": expression, "start": str(start_s), "end": str(end_s), "step": step}
        found: list[dict[str, Any]] = self._get("query_range", times)["result"]
        return found

    def label_values(self, label: str, series: str | None = None) -> list[str]:
        """The values that a label has, in the series that a selector chooses."""
        found: list[str] = self._get(f"label/{label}/values", {"match[]": series} if series else {})
        return found

    def rules(self) -> list[dict[str, Any]]:
        """The alerts, with ``health``, ``state`` and ``lastError``."""
        return [rule for group in self._get("rules", {})["groups"] for rule in group["rules"]]

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"Prometheus ended:\n{(self._directory / 'log').read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, what: str, arguments: Mapping[str, str]) -> Any:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(arguments)}") as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{arguments}: {json.load(error)['error']}") from error
