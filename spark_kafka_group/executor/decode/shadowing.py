"""A source tree without a built decoder that Python finds before the installed package, which has one.

Spark starts workers in its working directory, and Python looks there first: so does a job that is started from a fresh
clone.
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

HERE = Path(__file__).parent
PARTS = HERE.parts[-3:]  # spark_kafka_group/executor/decode


def built_elsewhere() -> Path | None:
    """The folder of the first compiled decoder behind this one on Python's path."""
    for place in dict.fromkeys(Path(entry, *PARTS).resolve() for entry in sys.path):
        if place != HERE.resolve() and any((place / f"_decode_c{suffix}").is_file() for suffix in EXTENSION_SUFFIXES):
            return place
    return None


def is_same_code(other: Path) -> bool:
    """Whether the Python twin, and all that both twins use, are the same there: then the compiled twins are, too."""
    return _sources(HERE) == _sources(other)


def _sources(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.py")}


def why_not_built() -> str:
    """Advice for an error or a warning, so that records are not decoded in Python."""
    tree, elsewhere = HERE.parents[2], built_elsewhere()
    if not (tree / "setup.py").is_file():
        return "install spark-kafka-group where there is a C compiler and without SPARK_KAFKA_GROUP_NO_EXTENSION"
    here = f"you are in a source tree, {tree}"
    build = "run `python setup.py build_ext --inplace` there"
    if elsewhere is None:
        return f"{here}: {build}"
    return (
        f"{here}, which Python takes before the package installed in {elsewhere.parents[2]}, of another version: start "
        f"the job in another directory, or {build}"
    )
