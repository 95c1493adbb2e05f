"""Who may import whom: the rooms of the package, and the one module that knows kafka-python's inside."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "spark_kafka_group"

VALUES = {
    "bounds", "errors", "notes", "offsets", "options", "parsing", "plugins", "refused", "schema", "security",
    "subscription", "task", "timing",
}  # fmt: skip
ALLOWED = {
    "errors": set(),
    "offsets": {"errors"},
    "subscription": {"offsets"},
    "bounds": {"errors", "offsets"},
    "parsing": {"bounds", "offsets"},
    "plugins": {"errors"},
    "security": {"errors", "plugins"},
    "refused": set(),
    "options": {"bounds", "errors", "offsets", "parsing", "plugins", "refused", "security", "subscription"},
    "schema": set(),
    "notes": set(),
    "offsets_topic": {"offsets"},
    "task": {"offsets"},
    "timing": set(),
    "wire": VALUES,
    "driver": VALUES | {"wire"},
    "executor": VALUES | {"wire"},
    "source": VALUES | {"driver", "executor"},
    "pinned": {"offsets"},
    "batch": VALUES | {"wire", "driver", "pinned"},
    "group_metrics": {"offsets"},
    "prometheus": {"group_metrics"},
    "listener": VALUES | {"wire", "group_metrics", "prometheus"},
    "where": VALUES | {"pinned"},
    "tools": VALUES | {"wire", "offsets_topic"},
    "__main__": {"errors", "tools"},
    "__init__": VALUES | {"source", "batch", "listener", "where"},
    "testing": {"offsets_topic"},
}
"""Room to the rooms it may import. driver and executor never meet."""


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_rooms_below_its_own(path):
    room = room_of(path)
    for name in imported_modules(path):
        parts = name.split(".")
        if parts[0] == "spark_kafka_group" and len(parts) > 1:
            assert parts[1] == room or parts[1] in ALLOWED[room], f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_wire_knows_kafka_pythons_inside(path):
    kafka = [name for name in imported_modules(path) if name.split(".")[0] == "kafka"]
    if room_of(path) == "testing":
        assert all(name.count(".") <= 2 for name in kafka), "testing uses the public client only"
    elif room_of(path) != "wire":
        assert kafka == []


def test_every_room_is_in_the_table():
    assert {room_of(path) for path in FILES} == set(ALLOWED)
