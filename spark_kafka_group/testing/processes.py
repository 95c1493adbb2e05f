"""Living processes, as Linux tells."""

from __future__ import annotations

from pathlib import Path

PARENT, SESSION = 1, 3
"""Fields of /proc/<pid>/stat, counted from the state."""


def children(pid: int) -> list[int]:
    """Ids of a process's living children."""
    return _living(PARENT, pid)


def session(pid: int) -> list[int]:
    """Ids of all living processes of the session that this one leads."""
    return _living(SESSION, pid)


def _living(field: int, value: int) -> list[int]:
    ids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[field]) == value and fields[0] != "Z":
                ids.append(int(entry.name))
    return ids
