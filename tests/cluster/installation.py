"""The package as the nodes of a cluster have it: its wheel, in a Python that sees nothing of the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from support.source_tree import copy_of_sources

INHERITED = ("HOME", "JAVA_HOME", "LANG", "PATH", "SPARK_SUBMIT_OPTS", "TMPDIR")
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For the ten JVMs of these tests, which spend most of their time on compiling otherwise."""


def build_sdist(directory: Path) -> Path:
    """Build the sdist from a copy of the source tree, in which generated C lies about."""
    tree = copy_of_sources(directory)
    for generated in ("decode/_decode_c.c", "encode/_encode_c.c"):
        (tree / "spark_kafka_group/executor" / generated).write_text("#error generated elsewhere\n")
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    _run(sys.executable, "-c", build, directory, cwd=tree)
    return next(directory.glob("*.tar.gz"))


def build_wheel(directory: Path, sdist: Path) -> Path:
    """Build the wheel, with compiled modules, from the sdist. Optimizing them would take a minute."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", directory, sdist]
    _run(*pip, env=os.environ | {"CFLAGS": "-O0"})
    return next(directory.glob("*.whl"))


class Installation:
    """A virtual environment with the wheel, its requirements, those of `besides`, and nothing else.

    Only the wheel is really installed: the others are links to those that the tests run with, as pyspark alone takes
    a minute and 500 MB.
    """

    def __init__(self, directory: Path, wheel: Path, *besides: str) -> None:
        self.directory = directory
        self.python = directory / "bin" / "python"
        _run(sys.executable, "-m", "venv", "--without-pip", directory)
        _run(sys.executable, "-m", "pip", "--python", self.python, "install", "-q", "--no-deps", "--no-index", wheel)
        self.packages = next(directory.glob("lib/python*/site-packages"))
        (own,) = distributions(path=[str(self.packages)])
        for found in _required([*(own.requires or ()), *besides]).values():
            _link(found, self.packages)
        # Workers make a folder in here.
        self.spark_home = directory / "spark"
        self.spark_home.mkdir()
        for part in (self.packages / "pyspark").iterdir():
            (self.spark_home / part.name).symlink_to(part.resolve())

    def environment(self, **more: str) -> dict[str, str]:
        """Variables of a process on this installation; none of the tests' own Python."""
        own = {
            "PYSPARK_PYTHON": str(self.python),
            "SPARK_HOME": str(self.spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_TOOL_OPTIONS": os.environ.get("JAVA_TOOL_OPTIONS", SHORT_LIVED),
            "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        }
        return {name: os.environ[name] for name in INHERITED if name in os.environ} | own | more


def _required(requirements: list[str]) -> dict[str, Distribution]:
    """The distributions that satisfy these, and their requirements in turn."""
    found: dict[str, Distribution] = {}
    seen = set()
    todo = [(Requirement(text), "") for text in requirements]
    while todo:
        requirement, extra = todo.pop()
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if wanted and str(requirement) not in seen:
            seen.add(str(requirement))
            found[requirement.name] = distribution(requirement.name)
            inner = [Requirement(text) for text in found[requirement.name].requires or ()]
            todo += [(each, extra) for each in inner for extra in ("", *requirement.extras)]
    return found


def _link(found: Distribution, packages: Path) -> None:
    """Link the top-level modules of a distribution."""
    for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
        place = Path(str(found.locate_file(top)))
        if not (packages / top).exists():
            (packages / top).symlink_to(place)


def _run(*command: object, **how: Any) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, done.stdout + done.stderr
