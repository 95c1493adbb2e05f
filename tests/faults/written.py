"""Files that a process of a run writes line by line."""

from __future__ import annotations

from pathlib import Path


def whole_lines(path: Path) -> list[str]:
    """Its lines, none where it does not exist; without a last one that a kill -9, or a full disk, has cut off."""
    return path.read_text(errors="replace").rpartition("\n")[0].splitlines() if path.exists() else []
