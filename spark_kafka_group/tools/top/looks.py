"""Looks at groups: what the brokers know, asked from outside."""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_kafka_group.tools.coordinators import groups_not_shown
from spark_kafka_group.tools.describe import look_without_generation
from spark_kafka_group.tools.top.rates import Look
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.group.all_groups import GroupOffsets
from spark_kafka_group.wire.group.membership import Committed


def looking_at(group: str | None) -> Callable[[GroupAdmin], Look]:
    """A look at all groups, or at one.

    Raises
    ------
    ToolError
        When the one group does not exist, or is not one of consumers.
    BrokerError
    """
    return all_groups if group is None else lambda admin: one_group(admin, group)


def all_groups(admin: GroupAdmin) -> Look:
    """All groups of consumers, with the ends of the logs that they have committed."""
    groups = admin.group_offsets()
    ends = admin.log_ends(sorted({tp for group in groups.values() for tp in group.committed}))
    return Look(time.monotonic(), groups, ends, problem=groups_not_shown(admin))


def one_group(admin: GroupAdmin, group: str) -> Look:
    """A group with its partitions."""
    report = look_without_generation(admin, group, time.time)
    rows = report.partitions
    committed = {row.tp: Committed(row.current_offset, "") for row in rows if row.current_offset is not None}
    offsets = GroupOffsets(report.state, len(report.members), committed)
    ends = {row.tp: row.log_end_offset for row in rows if row.log_end_offset is not None}
    return Look(time.monotonic(), {group: offsets}, ends, rows, report.problem)
