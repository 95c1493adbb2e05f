"""What a cell is, and the table of all cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faults.evidence import GROUPKAFKA, KAFKA
from faults.scene import SESSION_S, Scene

BOTH = (GROUPKAFKA, KAFKA)
SECONDS, MINUTES = 20, 5
"""How often a fault is repeated that is over, and healed, within a minute; and one that takes longer."""
EXECUTOR, BROKER, OPERATOR = "executor", "broker", "operator"
"""Families of several kinds of faults, in a file each."""
CELLS: dict[str, Cell] = {}


@dataclass(frozen=True)
class Cell:
    """A fault, repeated in one run under one load.

    Attributes
    ----------
    happen
        Brings about the fault once, in ``with scene.fault(...)``.
    count
        How often, in a whole matrix.
    at_once
        How often in one run at most; the rest are runs of their own.
    brokers
        Makes other brokers than one to three on this machine.
    prepare, at_rest
        Done before the query starts; and when the load has ended.
    exempt
        Invariants that do not hold under this fault, and why.
    own
        Plays a run in place of a scene: with this cell, a seed, how many faults, a folder, and brokers or none.
    """

    family: str
    name: str
    what: str
    happen: Callable[[Any], None]
    count: int = SECONDS
    at_once: int = 10
    sources: tuple[str, ...] = BOTH
    nodes: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    partitions: int = 4
    replication: int | None = None
    per_second: float = 800
    session_s: float = SESSION_S
    sink: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    load: Mapping[str, Any] = field(default_factory=dict)
    brokers: Callable[[], Any] | None = None
    prepare: Callable[[Scene], None] | None = None
    at_rest: Callable[[Scene], object] | None = None
    exempt: Mapping[str, str] = field(default_factory=dict)
    own: Callable[..., dict[str, Any]] | None = None


def cell(family: str, what: str, **more: Any) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register a function as a cell, by its name."""

    def register(happen: Callable[[Scene], None]) -> Callable[[Scene], None]:
        add(Cell(family, happen.__name__.replace("_", "-"), what, happen, **more))
        return happen

    return register


def add(made: Cell) -> None:
    """Register a cell."""
    assert made.name not in CELLS, f"two cells are named {made.name}"
    CELLS[made.name] = made
