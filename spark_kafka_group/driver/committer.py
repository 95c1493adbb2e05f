"""Commits what has succeeded, as soon as that is known, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_group.driver.positions import commit_note
from spark_kafka_group.errors import CommitError, MembershipLostError
from spark_kafka_group.offsets import GroupOffset, OffsetRange
from spark_kafka_group.wire import GroupClient

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """A planned micro-batch.

    Attributes
    ----------
    end
        The offset Spark keeps for it.
    ranges
        What it reads.
    generation
        The generation it belongs to: it may be committed under no other.
    """

    end: GroupOffset
    ranges: Sequence[OffsetRange]
    generation: int

    @property
    def records(self) -> int:
        return sum(r.size for r in self.ranges)


class Committer:
    """Holds the one batch that is planned and not yet known to have succeeded.

    Spark runs micro-batches one after the other, so there is never a second.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._planned: Batch | None = None

    @property
    def planned(self) -> Batch | None:
        return self._planned

    def plan(self, batch: Batch) -> None:
        """Take note of a batch that Spark is about to run."""
        self._planned = batch

    def succeeded(self, done: GroupOffset, client: GroupClient, reader: str) -> bool:
        """Everything up to `done` has succeeded: commit the planned batch if it ends there.

        Returns
        -------
        bool
            False when the group no longer counts this driver as a member, so that nothing was committed: positions
            must be taken again, which commits what the checkpoint knows better.

        Raises
        ------
        CommitError
            When the commit failed for good.
        FencedError
        """
        batch = self._planned
        if batch is None or batch.end != done:
            return True
        self._planned = None
        if not batch.ranges:
            return True
        try:
            client.commit({r.tp: r.end for r in batch.ranges}, commit_note(reader, batch.generation), batch.generation)
        except MembershipLostError as error:
            log.warning("group %s: generation %d: not committed: %s", self.group_id, batch.generation, error)
            return False
        except CommitError as error:
            raise CommitError(
                f"{error}. The rows of {', '.join(map(str, batch.ranges))} are in the sink: this query goes on after "
                f"them when it is restarted from its checkpoint, another consumer of the group would read them again"
            ) from error
        log.info(
            "group %s: generation %d: committed %s",
            self.group_id, batch.generation, " ".join(f"{r.tp}={r.end}" for r in batch.ranges),
        )  # fmt: skip
        return True
