"""The package's sources: parsed, and copied without built files."""

import ast
import gc
import shutil
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_kafka_group"
FILES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")


@cache
def parsed(file: Path) -> ast.Module:
    """A file, which is parsed once for all tests of a process."""
    gc.disable()  # a finalizer that logs a traceback parses, too: Python 3.11 fails where one parse is within another
    try:
        return ast.parse(file.read_text())
    finally:
        gc.enable()


@cache
def modules() -> dict[Path, ast.Module]:
    """The package's modules by their files."""
    return {file: parsed(file) for file in sorted(PACKAGE.rglob("*.py"))}


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    """All nodes of a module, in the order of ast.walk()."""
    return list(ast.walk(tree))


def copy_of_sources(directory: Path) -> Path:
    """The copy, in a new folder of `directory`."""
    tree = directory / "tree"
    built_here = shutil.ignore_patterns("*.so", "_decode_c.c", "_encode_c.c", "__pycache__")
    for package in ("spark_kafka_group", "pyspark_groupkafka", "jobs", "conf"):
        shutil.copytree(ROOT / package, tree / package, ignore=built_here)
    for file in FILES:
        shutil.copy(ROOT / file, tree)
    return tree
