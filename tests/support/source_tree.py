"""A copy of the package's sources, without built files."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")


def copy_of_sources(directory: Path) -> Path:
    """The copy, in a new folder of `directory`."""
    tree = directory / "tree"
    built_here = shutil.ignore_patterns("*.so", "_decode_c.c", "_encode_c.c", "__pycache__")
    for package in ("spark_kafka_group", "pyspark_groupkafka", "jobs", "conf"):
        shutil.copytree(ROOT / package, tree / package, ignore=built_here)
    for file in FILES:
        shutil.copy(ROOT / file, tree)
    return tree
