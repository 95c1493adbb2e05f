"""Partitions assigned by hand: no membership and no generations, but the same positions and commits."""

from __future__ import annotations

import logging

from spark_kafka_group.driver.membership.member_protocol import Joined, Membership
from spark_kafka_group.driver.reporting.events import EventLog
from spark_kafka_group.errors import MembershipError
from spark_kafka_group.options import Options
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.values.commit_metadata import instance_id_of, is_signed
from spark_kafka_group.wire import GroupClient

log = logging.getLogger(__name__)


class ManualAssignment(Membership):
    """A :class:`Member` of option ``assign``, of generation -1; `query_id` tells its own commits from others'."""

    def __init__(self, options: Options, group_id: str, query_id: str, events: EventLog) -> None:
        self._group_id = group_id
        self._query_id = query_id
        self._events = events
        self._subscription = options.reading.subscription
        self._former = instance_id_of(options.group.instance_id, query_id)  # if it was a member, and was killed
        self._is_named = options.group.id is not None
        self._checked = False
        self.client = GroupClient(options, group_id)
        self.client.subscribe(self._subscription)

    # The user assigns: it never rebalances, and no other member gets these partitions.

    @property
    def strategy(self) -> str:
        return ""

    def asked_to_rejoin(self) -> bool:
        return False

    def hears_of_rebalance(self) -> bool:
        return False

    def hands_over(self) -> bool:
        return False

    def may_be_joined(self) -> bool:
        return False

    def unsettled(self) -> bool:
        return False

    def undisturbed(self) -> bool:
        return self._generation is not None

    def ensure(self, patience_ms: float | None = None) -> Joined:
        """Look once whether the partitions exist, and whether the user's group is one of consumers. Raises
        MembershipError when one of the partitions does not exist, or the group would take no commit; BrokerError."""
        if self._generation is not None:
            return Joined.SAME
        missing = self._subscription.missing(self.client.partitions(self._subscription))
        if missing:
            raise MembershipError(f"assign names {', '.join(missing)}, which the cluster does not have")
        if self._is_named:
            self.client.check_type()
        self._generation = self.client.current()
        self._events.assigned(self._generation.id, self._generation.assignment)
        return Joined.AS_NEW

    def next_generation(self) -> Joined:
        return Joined.SAME

    def use(self) -> int:
        return self.generation.id

    def check_may_commit(self) -> None:
        """Before the first commit, warn of offsets of others, as programs without membership overwrite each other's,
        and refuse a group with members, as Kafka would. Raises MembershipError."""
        if self._checked:
            return
        members = self.client.live_members()
        if members == [self._former]:
            raise MembershipError(
                f"group {self._group_id} still has this query's former process as a member ({self._former}), so Kafka "
                f"refuses the commits of a query with assign: start it again when the session of that process has "
                f"ended (its kafka.session.timeout.ms, unless changed 45 s)"
            )
        if members:
            raise MembershipError(
                f"group {self._group_id} has members ({', '.join(sorted(members))}), so Kafka refuses the commits of a "
                f"query with assign, which is no member: take another kafka.group.id, or subscribe instead of assign"
            )
        committed = self.client.committed(self.generation.assignment)
        for tp, group in sorted(committed.items()):
            if not is_signed(group.metadata, self._query_id):
                log.warning(
                    "group %s: %s: another program committed offset %d (%s): programs that assign partitions "
                    "under one group id overwrite each other's offsets; give each a group of its own",
                    self._group_id, tp, group.offset, printable(group.metadata) or "without a note",
                )  # fmt: skip
        self._checked = True

    def stop(self) -> None:
        self.client.close()
