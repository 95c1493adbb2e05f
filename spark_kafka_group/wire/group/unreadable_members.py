"""Members whose subscription cannot be read: a leader assigns them nothing, and says so."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import kafka.errors as kafka_errors

from spark_kafka_group.text.printable import printable
from spark_kafka_group.wire.group.member_metadata import subscribed_to, usable
from spark_kafka_group.wire.group.members import described

log = logging.getLogger(__name__)


class UnreadableMembers:
    """The members of a group that a leader cannot assign anything to.

    Any program may join with any bytes. If they ended the assignment with an error, as in kafka-python, that program
    would stop each query that leads its group.

    Parameters
    ----------
    ask
        Sends a request to the group's coordinator and returns its response.
    """

    def __init__(self, group_id: str | None, ask: Callable[[Any], Any]) -> None:
        self._group_id = group_id
        self._ask = ask
        self._now: set[str] = set()  # in the last assignment
        self._reported: set[str] = set()

    def replaced(self, members: Sequence[Any]) -> Sequence[Any]:
        """Members of a JoinGroup response, with subscriptions by which kafka-python can assign."""
        self._now = set()
        for member in members:
            subscription = usable(bytes(member.metadata or b""))
            if subscription is None:
                self._now.add(member.member_id)
            member.metadata = subscribed_to(()) if subscription is None else subscription
        return members

    def report(self) -> None:
        """Log each of them once."""
        new = sorted(self._now - self._reported)
        self._reported = self._now
        hosts = self._hosts() if new else {}
        for member_id in new:
            log.warning(
                "group %s: the subscription of member %s on %s cannot be read, so it gets no partitions: stop that "
                "program, or give it a group of its own",
                self._group_id, printable(member_id), printable(hosts.get(member_id, "an unknown host")),
            )  # fmt: skip

    def _hosts(self) -> dict[str, str]:
        with contextlib.suppress(kafka_errors.KafkaError):
            return {member.member_id: member.host for member in described(self._ask, self._group_id or "").members}
        return {}
