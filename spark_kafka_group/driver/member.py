"""Membership of the consumer group: when to join, and when a micro-batch starts a new generation."""

from __future__ import annotations

import logging

from spark_kafka_group.driver.assignors import STRATEGIES
from spark_kafka_group.options import Options
from spark_kafka_group.wire import Generation, GroupClient

log = logging.getLogger(__name__)


class Member:
    """This driver's place in the group.

    Parameters
    ----------
    static_id
        group.instance.id: the user's own, or one derived from the reader id.
    leaves
        Whether stopping leaves the group; a static member with a name of the user's own does not, as in Kafka.
    """

    def __init__(self, options: Options, group_id: str, static_id: str | None, leaves: bool) -> None:
        self._options = options
        self._group_id = group_id
        self._leaves = leaves
        self._used = True  # whether a batch was planned under the current generation
        self.client = GroupClient(options, group_id, static_id, STRATEGIES)
        self.client.subscribe(options.topics)
        self._generation: Generation | None = None

    @property
    def generation(self) -> Generation:
        """The generation joined last."""
        assert self._generation is not None, "join first"
        return self._generation

    def ensure(self) -> bool:
        """Be a member of a stable group.

        Returns
        -------
        bool
            True when membership had been lost, or is new: what this driver believes about positions is void.

        Raises
        ------
        FencedError, MembershipError, BrokerError
        """
        if self._generation is None:
            existing = self.client.partitions(self._options.topics)  # a leader assigns what it knows to exist
            missing = sorted(set(self._options.topics) - {tp.topic for tp in existing})
            if missing:
                log.warning("group %s: no such topic, waiting for it: %s", self._group_id, ", ".join(missing))
            joined = self.client.join()
            if not joined.leader:
                # A static leader that comes back within its session is given its old generation and told, by the id of
                # the member it replaces, that another one leads. The broker knows better: asked again, it starts a
                # new generation for a leader, and gives a follower the current one.
                self.client.request_rejoin()
                joined = self.client.join()
            self._enter(joined)
            return True
        self.client.check_not_fenced()
        if not self.client.rejoin_needed():
            return False
        lost = self.client.lost()
        if lost:
            log.warning(
                "group %s: generation %d: membership was lost; joining as new",
                self._group_id,
                self._generation.id,
            )
        self._enter(self.client.join())
        return lost

    def next_generation(self) -> None:
        """Start a new generation for a batch if option ``generation`` says so and the current one already had one."""
        if self._used and self._wants_new():
            self.client.request_rejoin()
            self._enter(self.client.join())

    def use(self) -> int:
        """Plan a batch under the current generation; returns its id."""
        self._used = True
        return self.generation.id

    def _wants_new(self) -> bool:
        policy = self._options.generation
        return policy == "batch" or (policy == "auto" and self.generation.alone)

    def _enter(self, joined: Generation) -> None:
        if self._generation is None or joined.id != self._generation.id:
            self._used = False
        self._generation = joined
        log.info(
            "group %s: generation %d: %s of %s as %s: assigned %s",
            self._group_id,
            joined.id,
            "leader" if joined.leader else "follower",
            f"{joined.members} member(s)" if joined.members else "the group",
            joined.member_id,
            " ".join(map(str, sorted(joined.assignment))) or "nothing",
        )

    def stop(self) -> None:
        """Leave the group, if this member leaves at all, and close connections. Never hangs on a dead broker."""
        try:
            if self._leaves:
                self.client.leave()
        finally:
            self.client.close()
