"""The transactional ids of a write: one of its driver's, and few of its tasks', which are used again and again.

The driver has the prefix itself, kafka.transactional.id. A task has ``<prefix>-<slot>-<number>-<parity>``: its
partition in Spark's sense, the first number from its attempt on that is free, and 0 or 1, which changes with each
decision. Three numbers and no more: so ids of the prefix ``orders-1`` are none of the prefix ``orders``. But
``orders-2025-10-1`` may not be a prefix: a write with ``orders`` would take it for a task of its own, and abort its
decision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OF_A_TASK = re.compile(r"-([0-9]{1,10})-([0-9]{1,10})-([01])", re.ASCII)


@dataclass(frozen=True, order=True)
class TaskId:
    """A task's transactional id, without the prefix."""

    slot: int
    number: int
    parity: int

    def transactional_id(self, prefix: str) -> str:
        """The whole id."""
        return f"{prefix}-{self.slot}-{self.number}-{self.parity}"

    @classmethod
    def parsed(cls, transactional_id: str, prefix: str) -> TaskId | None:
        """None for an id that is no task's of this prefix."""
        found = _OF_A_TASK.fullmatch(transactional_id.removeprefix(prefix))
        if found is None or not transactional_id.startswith(prefix):
            return None
        return cls(int(found[1]), int(found[2]), int(found[3]))


def of_a_task(transactional_id: str) -> bool:
    """Whether it may be the id of a task, whatever the prefix."""
    return re.search(f"{_OF_A_TASK.pattern}$", transactional_id, re.ASCII) is not None


def pattern(prefix: str) -> str:
    """The ids of a prefix, the driver's included, as brokers take a regular expression (KIP-1152)."""
    return f"{re.escape(prefix)}(-[0-9]+-[0-9]+-[01])?"
