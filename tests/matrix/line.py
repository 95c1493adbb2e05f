"""Parts of the line of JSON that a run leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrix.cells.registry import KAFKA
from matrix.observed import Fault


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
