"""What runs leave for the report: a line of JSON each, in a file for each cell and source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faults import TESTS
from faults.evidence import KAFKA, Fault

RESULTS = TESTS / "faults" / "results"


def file_of(name: str, source: str, results: Path = RESULTS) -> Path:
    return results / f"{name}.{source}.jsonl"


def lines_of(name: str, source: str, results: Path = RESULTS) -> list[dict[str, Any]]:
    """The results of a cell, so far."""
    path = file_of(name, source, results)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def gap(fault: Fault) -> dict[str, Any]:
    """How long a fault lasted, and how long it took until rows came, and 1,000 of them, once it was over."""

    def after(ms: float | None) -> float | None:
        return None if ms is None else round((ms - fault.healed_ms) / 1000, 2)

    return {
        "what": fault.what,
        "lasted": round((fault.healed_ms - fault.began_ms) / 1000, 2),
        "first": after(fault.first_ms),
        "progressed": after(fault.progressed_ms),
        "bound": fault.bound_s,
    }


def counts(line: Mapping[str, Any], source: str) -> bool:
    """Whether a run counts: one without violations. What Spark's source violates is a result, and nothing to mend."""
    return source == KAFKA or not line["violations"]
