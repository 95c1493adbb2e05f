"""The transactional ids of a write: one of its driver's, and few of its tasks', which are used again and again.

The driver has the prefix itself, kafka.transactional.id. A task has ``<prefix>-<slot>-<number>-<parity>``: its
partition in Spark's sense, the first number from its attempt on that is free, and 0 or 1, which changes with each
decision. Three numbers and no more: so ids of the prefix ``orders-1`` are none of the prefix ``orders``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class TaskId:
    """A task's transactional id, without the prefix."""

    slot: int
    number: int
    parity: int

    def of(self, prefix: str) -> str:
        """The whole id."""
        return f"{prefix}-{self.slot}-{self.number}-{self.parity}"

    @classmethod
    def parsed(cls, transactional_id: str, prefix: str) -> TaskId | None:
        """None for an id that is no task's of this prefix."""
        found = re.fullmatch(r"-([0-9]{1,10})-([0-9]{1,10})-([01])", transactional_id.removeprefix(prefix), re.ASCII)
        if found is None or not transactional_id.startswith(prefix):
            return None
        return cls(int(found[1]), int(found[2]), int(found[3]))


def pattern(prefix: str) -> str:
    """The ids of a prefix, the driver's included, as brokers take a regular expression (KIP-1152)."""
    return f"{re.escape(prefix)}(-[0-9]+-[0-9]+-[01])?"
