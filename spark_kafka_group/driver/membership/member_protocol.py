"""The contract of a query's place in its group, joined or assigned by hand, and the group's other members."""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Protocol

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Generation, GroupClient


class Joined(enum.Enum):
    """The outcome of :meth:`Membership.ensure`."""

    SAME = "the generation is the same"
    NEW_GENERATION = "the group rebalanced"
    AS_NEW = "the driver joined as a new member: others may have read on from its positions"
    NOT_YET = "the group has not settled in time"


class Membership(Protocol):
    """A query's place in its group: a member of it, or partitions assigned by hand."""

    client: GroupClient
    _generation: Generation | None = None

    @property
    def generation(self) -> Generation:
        """The generation joined last; there is one after the first :meth:`ensure` that did not end with NOT_YET."""
        assert self._generation is not None, "ensure first"
        return self._generation

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """Partitions of that generation; none before it."""
        return frozenset() if self._generation is None else self._generation.assignment

    @property
    def strategy(self) -> str:
        """What assigned its partitions; empty without membership, and while it is not known."""

    def ensure(self, patience_ms: float | None = None) -> Joined:
        """Be a member of a stable group. `patience_ms`: how long to wait for other members; as long as a consumer does
        if not given. Raises FencedError, MembershipError, BrokerError."""

    def next_generation(self) -> Joined:
        """Start a new generation for a batch, if it needs one."""

    def use(self) -> int:
        """Plan a batch under the current generation; returns its id."""

    def asked_to_rejoin(self) -> bool:
        """Whether the group rebalances and this driver, still a member, has not yet given its partitions back."""

    def hears_of_rebalance(self) -> bool:
        """Whether the group rebalances, asked now instead of with the next heartbeat."""

    def hands_over(self) -> bool:
        """Whether others go on when this driver leaves, and it can commit positions for them."""

    def may_be_joined(self) -> bool:
        """Whether others may get partitions before a batch that is planned now has been committed."""

    def unsettled(self) -> bool:
        """Whether :meth:`ensure` would have something to do."""

    def undisturbed(self) -> bool:
        """Whether this driver is a member, and no rebalance is under way. Raises FencedError, MembershipError."""

    def check_may_commit(self) -> None:
        """Refuse, before the first commit, a group where others overwrite it. Raises MembershipError, BrokerError."""

    def stop(self) -> None:
        """Leave the group, if this is a member, and close connections."""


UNNAMED = "which the coordinator does not name"


def others_in_group(
    client: GroupClient, generation: Generation, static_id: str | None, apart: Collection[str] = ()
) -> tuple[str, ...]:
    """Names of the group's members but for this one, asked of its coordinator; none where this one is alone.
    `static_id`: this member's group.instance.id, if it has one. `apart`: those of members that are known to read other
    topics. Raises BrokerError."""
    if generation.alone:
        return ()
    own, members = static_id or generation.member_id, client.live_members()
    if own not in members:
        return (UNNAMED,)  # a coordinator that does not name this member may not name others either
    return tuple(sorted({*members} - {own, *apart}))
