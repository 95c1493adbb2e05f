"""The application, seen from the tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from installation import Installation

APPLICATION = Path(__file__).with_name("application.py")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
}
"""An executor on each of two workers."""


class ApplicationError(Exception):
    """The application's error."""


class Deployed:
    """The application in a process of its own, in a directory of its own; methods are those of `Application`."""

    def __init__(
        self,
        installed: Installation,
        directory: Path,
        *,
        conf: dict[str, str],
        variables: Mapping[str, str] | None = None,
        **where: str,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "log"
        self.installed = installed
        options = [part for name, value in where.items() for part in (f"--{name}", value)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(installed.python), str(APPLICATION), "--conf", json.dumps(conf), *options],
                cwd=directory,
                env=installed.environment(**(variables or {})),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._answer()

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps([name, arguments]) + "\n")
            self.process.stdin.flush()
            return self._answer()

        return call

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the application ended:\n{self.log.read_text()[-6000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise ApplicationError(answer["error"])
        return answer["answer"]

    def close(self) -> None:
        """Let it end: it stops its session."""
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
