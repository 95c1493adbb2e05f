"""Prints figures of the package's structure and of its prose: `make figures`. No test enforces them."""

from __future__ import annotations

import ast
import graphlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_kafka_group"
DRIVER = ("stream", "session", "steps", "query")
"""Rooms of driver/, the highest first. The other rooms of driver/ are below all four."""
PROSE = ("README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "docs/design/*.md")
TREES = {file: ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}
MODULES = {file.relative_to(PACKAGE).with_suffix("").parts: tree for file, tree in TREES.items()}


def imports() -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Pairs of an importing and an imported module of the package, as parts of their names."""
    found = set()
    for importing, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE.name:
                room = tuple((node.module or "").split(".")[1:])
                for parts in ((*room, alias.name) for alias in node.names):
                    is_module = parts in MODULES or (*parts, "__init__") in MODULES
                    found.add((importing, parts if is_module else room or ("__init__",)))
    return found


def arrows(pairs: set[tuple[tuple[str, ...], tuple[str, ...]]]) -> set[tuple[str, str]]:
    """Imports between rooms of the root, as test_imports.py counts rooms: packages and loose modules."""
    return {(importing[0], imported[0]) for importing, imported in pairs if importing[0] != imported[0]}


def back_up(pairs: set[tuple[tuple[str, ...], tuple[str, ...]]]) -> list[str]:
    """Imports in driver/ of a module of a higher room by a module of a lower room."""
    floors = defaultdict(lambda: len(DRIVER), {room: floor for floor, room in enumerate(DRIVER)})
    return sorted(f"{'.'.join(a)} -> {'.'.join(b)}" for a, b in pairs if floors[a[0]] > floors[b[0]])


def circle(pairs: set[tuple[str, str]]) -> str:
    """Rooms that import each other in a circle."""
    try:
        graphlib.TopologicalSorter({a: sorted(b for x, b in pairs if x == a) for a, _ in sorted(pairs)}).prepare()
    except graphlib.CycleError as error:
        return " <- ".join(error.args[1])
    return "none"


def figures() -> Iterator[tuple[str, str]]:
    """Names and values, a line each."""
    lines = {file: len(file.read_text().splitlines()) for file in TREES}
    longest = max(lines, key=lines.__getitem__)
    classes = Counter(node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    twice = sorted(name for name, times in classes.items() if times > 1)
    in_driver = {(a[1:], b[1:]) for a, b in imports() if a[0] == b[0] == "driver" and len(b) > 1}
    yield "rooms", f"{len({parts[0] for parts in MODULES})}"
    yield "arrows between rooms", f"{len(arrows(imports()))}"
    yield "modules in the root", f"{sum(len(parts) == 1 for parts in MODULES)}"
    yield "arrows back up in driver", "\n  ".join([f"{len(back_up(in_driver))}", *back_up(in_driver)])
    yield "circle of rooms in driver", circle(arrows(in_driver))
    yield "folders of Python", f"{sum(parts[-1] == '__init__' for parts in MODULES)}"
    yield "files of Python", f"{len(lines)}"
    yield "lines of Python", f"{sum(lines.values()):,}"
    yield "longest file", f"{lines[longest]} {longest.relative_to(PACKAGE)}"
    yield "class names twice", f"{len(twice)} {', '.join(twice)}"
    for pattern in PROSE:
        yield f"words of {pattern}", f"{sum(len(page.read_text().split()) for page in ROOT.glob(pattern)):,}"


if __name__ == "__main__":
    for name, value in figures():
        print(f"{name:<26}{value}")
