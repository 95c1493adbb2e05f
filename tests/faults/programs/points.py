"""Points at which a process stands still, as long as one is armed for it: a test kills it there, or lets it go on.

Each process of a query has a folder of marks: ``armed`` names the point, ``<point>-<pid>`` says who stands there.
Spark's workers import this, so nothing of the judge is here.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

POINTS = {
    "planned": "the batch is planned, its tasks do not run",
    "tasks": "a task has read its first rows",
    "sink": "the sink has the batch, Spark has not logged it",
    "before-commit": "Spark has logged the batch, the group has no commit",
    "after-commit": "the group has the commit",
}
"""Of a micro-batch that is read."""


def arm(marks: Path, point: str) -> None:
    """Have processes stand at this point, once they come there."""
    (marks / "arming").write_text(point)
    (marks / "arming").rename(marks / "armed")


def disarm(marks: Path) -> None:
    """Let processes go on."""
    (marks / "armed").unlink(missing_ok=True)
    for mark in marks.glob("*-*"):
        mark.unlink()


def is_armed(marks: Path, point: str) -> bool:
    """Whether processes are to stand at this point."""
    try:
        return (marks / "armed").read_text() == point
    except OSError:
        return False


def stand(marks: Path, point: str) -> None:
    """Say that this process has come to a point, and stay there as long as it is armed."""
    if is_armed(marks, point):
        (marks / f"{point}-{os.getpid()}").touch()
        while is_armed(marks, point):
            time.sleep(0.02)


def standing(marks: Path, point: str = "*") -> list[int]:
    """The processes that stand at a point, or at any."""
    return [int(mark.name.rpartition("-")[2]) for mark in marks.glob(f"{point}-*")]
