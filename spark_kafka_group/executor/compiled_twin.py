"""The compiled twin of a package, also where a source tree without it comes before the installed package, which has it.

Spark starts workers in its working directory, and Python looks there first: so does a job that is started from a fresh
clone.
"""

from __future__ import annotations

import importlib
import logging
import sys
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from spark_kafka_group.errors import OptionError

DEPTH = 3  # folders from an entry of Python's path to a package of twins: spark_kafka_group/executor/decode


_warned: set[str] = set()  # compiled twins of which a warning has said that they were not built


@dataclass(frozen=True)
class Twins:
    """A compiled module and its readable twin, in one package, which do the same."""

    package: str
    compiled: str
    readable: str
    option: str  # names a twin: ``c``, ``python`` or ``auto``
    refusal: str  # of ``c``, where the compiled twin was not built
    work: str  # what is slow without it

    def load(self, name: str) -> Any:
        """The twin that the option names. Raises OptionError when that is the compiled twin, and it was not built."""
        try:
            if name != "python":
                return load(self.package, self.compiled)
        except ImportError as error:
            advice = why_not_built(Path(str(sys.modules[self.package].__file__)).parent, self.compiled)
            if name == "c":
                raise OptionError(f"{self.refusal} ({error}): {advice}, or set {self.option}=auto") from error
            if self.compiled not in _warned:
                _warned.add(self.compiled)
                said = self.refusal.removeprefix(f"{self.option}=c: ")
                logging.getLogger(self.package).warning(
                    "%s (%s), so %s slowly in Python: %s", said, error, self.work, advice
                )
        return importlib.import_module(f"{self.package}.{self.readable}")


def load(package: str, module: str) -> Any:
    """The compiled `module` of an imported package: its own, or that of the same code behind it. Raises ImportError."""
    try:
        return importlib.import_module(f"{package}.{module}")
    except ImportError:
        path = sys.modules[package].__path__
        folder = Path(path[0])
        installed = _built_elsewhere(folder, module)
        # Where the Python twin, and all that both twins use, are the same there, the compiled twins are, too.
        if installed is None or _sources(folder) != _sources(installed):
            raise
        path.append(str(installed))
        return importlib.import_module(f"{package}.{module}")


def _built_elsewhere(package: Path, module: str) -> Path | None:
    """The first folder behind `package` on Python's path that is the same package, and has the compiled `module`."""
    parts = package.parts[-DEPTH:]
    for place in dict.fromkeys(Path(entry, *parts).resolve() for entry in sys.path):
        if place != package.resolve() and any((place / f"{module}{suffix}").is_file() for suffix in EXTENSION_SUFFIXES):
            return place
    return None


def _sources(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.py")}


def why_not_built(package: Path, module: str) -> str:
    """Advice for an error or a warning, so that records are not read or written in Python."""
    tree, elsewhere = package.parents[DEPTH - 1], _built_elsewhere(package, module)
    if not (tree / "setup.py").is_file():
        return "install spark-kafka-group where there is a C compiler and without SPARK_KAFKA_GROUP_NO_EXTENSION"
    installed = elsewhere and elsewhere.parents[DEPTH - 1]
    here = f"you are in a source tree, {tree}"
    build = "run `python setup.py build_ext --inplace` there"
    if elsewhere is None:
        return f"{here}: {build}"
    return (
        f"{here}, which Python takes before the package installed in {installed}, of another version: start the "
        f"job in another directory, or {build}"
    )
