"""A query becomes, and stays, a member of a group that has settled; how long it waits for that."""

from __future__ import annotations

import time

from spark_kafka_group.driver.membership.member_protocol import Joined
from spark_kafka_group.driver.membership.other_sources import OtherSources
from spark_kafka_group.driver.membership.yielding import YieldedBatch
from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.steps.handing_over import hand_over

OTHER_SOURCES_SLACK_MS = 2_000
"""A source waits for others of its query until the next heartbeat and this much longer: they may wait for it."""
SHARE_PAUSE_S = 0.05


class Settling:
    """Joins the group, and joins it again when it rebalances."""

    def __init__(self, query: Query, yielded: YieldedBatch, other_sources: OtherSources) -> None:
        self._query = query
        self._yielded = yielded
        self._other_sources = other_sources
        self._unsettled_since: float | None = None  # by time.monotonic(), from trigger to trigger

    def be_member(self, patience_ms: float | None = None) -> Joined:
        """Be a member of a settled group, if it settles within `patience_ms`; a batch that yielded is resumed.

        What succeeded has been committed before, and commits come before the join:

        1. A heartbeat's answer says that the group rebalances.
        2. Positions that the group does not have are committed under the old generation, which the coordinator still
           accepts: it waits for this member to join.
        3. Only then this member joins, and its partitions may go to others, who start at these commits.

        Raises FencedError, MembershipError, CommitTimeoutError, BrokerError.
        """
        member = self._query.member
        if member.asked_to_rejoin():
            hand_over(self._query)
        joined = member.ensure(patience_ms)
        self.enter(joined)
        if joined is not Joined.NOT_YET:
            self._resume()
        return joined

    def enter(self, joined: Joined) -> None:
        """Keep the positions of partitions that this member has owned without a break."""
        if joined is Joined.AS_NEW:
            self._query.standing.positioned.clear()
        elif joined is Joined.NEW_GENERATION:
            self._query.standing.positioned &= self._query.generation.unbroken

    def _resume(self) -> None:
        """A planned batch that yielded to the rebalance goes on with the partitions that this member has kept."""
        query, planned = self._query, self._query.committer.planned
        if planned is None or not self._yielded.yielded:
            return
        query.standing.hold(query.generation.id)
        resumed = self._yielded.resumed(planned, query.standing.positioned, query.generation.id)
        if resumed is not None:
            query.member.use()
            query.plan(resumed)

    def note_settled(self, settled: bool) -> None:
        """Whether the group has settled at this trigger."""
        if settled:
            self._unsettled_since = None
        elif self._unsettled_since is None:
            self._unsettled_since = time.monotonic()

    def patience_ms(self) -> float | None:
        """How long to wait for other members; None for as long as a consumer does.

        A short time, where another source of the same query is in the group. Waiting longer would wait for itself:

        1. The group rebalances, and waits for the other source, which holds the rebalance up until its batch is proven.
        2. Spark proves that batch when it asks the other source, which it does after it has asked this one.
        3. This one waits for the rebalance.
        """
        since, limit_s = self._unsettled_since, self._query.options.group.max_poll_interval_ms / 1000
        too_long = since is not None and time.monotonic() - since > limit_s
        if too_long or not self._other_sources.any():
            return None
        return self._query.options.group.heartbeat_interval_ms + OTHER_SOURCES_SLACK_MS

    def has_its_share(self) -> bool:
        """At the start, wait for the first share of each topic; False when that has begun a join that is not over.

        1. Another source of the query leads the group, and does not read a topic of this one's.
        2. This source joins, and the leader assigns only the topics whose partitions it has heard of: none of that one.
        3. The leader looks the topic up, and rebalances: the next generation has it.

        With cooperative-sticky, partitions taken from others come a generation late in the same way. A query with
        availableNow that does not wait may end without reading these records.
        """
        query, patience_ms = self._query, self.patience_ms()
        if not query.standing.is_restart or patience_ms is None:
            return True
        deadline = time.monotonic() + patience_ms / 1000
        while (left_ms := (deadline - time.monotonic()) * 1000) > 0:
            topics = {tp.topic for tp in query.client.known_partitions(query.subscription)}
            if topics <= {tp.topic for tp in query.generation.assignment}:
                break
            if not query.member.hears_of_rebalance():
                time.sleep(SHARE_PAUSE_S)
            elif self.be_member(left_ms) is Joined.NOT_YET:
                return False
        return True
