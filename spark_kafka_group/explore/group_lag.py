"""Consumer groups and their lag."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spark_kafka_group.explore.record_samples import to_look_at_topics
from spark_kafka_group.explore.shown_table import Table, short_name
from spark_kafka_group.text.text_table import counted, shortened
from spark_kafka_group.tools.coordinators import missing_groups
from spark_kafka_group.tools.describe import PartitionRow, how_far_behind, look_without_generation
from spark_kafka_group.tools.few_records import LagAdmin
from spark_kafka_group.tools.formatting import query_and_batch
from spark_kafka_group.wire.admin import GroupAdmin

LONGEST_ID = 26
"""Most characters of a member and of a query id, which would not fit beside each other; :meth:`Lag.to_df` has all."""


@dataclass(frozen=True)
class Group:
    """A group at one moment.

    Attributes
    ----------
    kind
        ``classic``, ``consumer`` (KIP-848), or another one, such as ``share``, whose members are not known here.
    state
        Kafka's word, such as ``Stable`` or ``Empty``.
    protocol_type
        ``consumer``, or another user of groups, such as ``connect``; empty without members.
    strategy
        The assignment strategy; empty without members.
    members
        Names of its members: their group.instance.id, else the id that the coordinator gave them.
    """

    group: str
    kind: str
    state: str
    protocol_type: str
    strategy: str
    members: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Groups(Table[Group]):
    """Groups by name; ``problem`` says which may be missing."""

    problem: str | None = None

    ddl: ClassVar[str] = (
        "`group` string, kind string, state string, protocol_type string, strategy string, members array<string>"
    )

    def title(self) -> str:
        return counted(len(self), "group")

    def remark(self) -> str:
        return self.problem or ""

    def headers(self) -> Sequence[str]:
        return ("group", "kind", "state", "strategy", "members", "names")

    def cells(self, row: Group) -> Sequence[object]:
        return (row.group, row.kind, row.state, row.strategy, len(row.members), ", ".join(row.members))

    def values(self, row: Group) -> tuple[Any, ...]:
        return (row.group, row.kind, row.state, row.protocol_type, row.strategy, list(row.members))


@dataclass(frozen=True, repr=False)
class Lag(Table[PartitionRow]):
    """Partitions of a group; unknown values are None.

    A row's ``lag`` is in records, ``lag_s`` in seconds: the age of the first record that is not committed yet. Its
    ``note`` names the query of this package that committed, with its generation and batch. ``problem`` says whose
    partitions are not known.
    """

    group: str
    state: str
    problem: str | None = None

    ddl: ClassVar[str] = (
        "topic string, partition int, committed bigint, `end` bigint, lag bigint, lag_seconds double, member string, "
        "host string, reader string, generation bigint, batch bigint"
    )

    wide: ClassVar[frozenset[str]] = frozenset({"generation"})

    def title(self) -> str:
        return f"group {short_name(self.group)}: {self.state}, {how_far_behind(self.rows, ' records')}"

    @property
    def records(self) -> int:
        """Lag of all partitions whose lag is known."""
        return sum(max(0, row.lag or 0) for row in self)

    def remark(self) -> str:
        unknown = sum(row.lag is None for row in self)
        missing = f"{counted(unknown, 'partition')} without a commit or a leader, whose lag is not known"
        return "; ".join(filter(None, [self.problem, missing if unknown else None]))

    def headers(self) -> Sequence[str]:
        return ("topic", "part", "committed", "end", "lag", "seconds", "member", "written by", "generation")

    def cells(self, row: PartitionRow) -> Sequence[object]:
        owner = row.owner and shortened(row.owner.name, LONGEST_ID)
        query_id = row.note and shortened(query_and_batch(row.note), LONGEST_ID)
        return (*row.tp, row.current_offset, row.log_end_offset, row.lag, row.lag_s, owner, query_id,
                row.note and row.note.generation)  # fmt: skip

    def values(self, row: PartitionRow) -> tuple[Any, ...]:
        note = (None, None, None) if row.note is None else (row.note.query_id, row.note.generation, row.note.batch)
        owner = (None, None) if row.owner is None else (row.owner.name, row.owner.host)
        return (*row.tp, row.current_offset, row.log_end_offset, row.lag, row.lag_s, *owner, *note)


def groups(options: Mapping[str, Any]) -> Groups:
    """All groups of the cluster that the user may see, with states and members.

    Raises
    ------
    OptionError, BrokerError
    """
    with GroupAdmin(to_look_at_topics(options)) as admin:
        found = {name: (kind, admin.describe(name)) for name, kind in sorted(admin.groups().items())}
        problem = missing_groups(admin)
    return Groups(
        tuple(
            Group(
                name, kind, group.state, group.protocol_type, group.strategy,
                tuple(sorted(member.name for member in group.members)),
            )
            for name, (kind, group) in found.items()
        ),
        problem,
    )  # fmt: skip


def lag(options: Mapping[str, Any], group: str) -> Lag:
    """How far a group is behind in each partition that it has committed, or that a member has; and who committed.

    Raises
    ------
    OptionError
    ToolError
        When the group does not exist, or is not one of consumers.
    BrokerError
    """
    with LagAdmin(to_look_at_topics(options)) as admin:
        report = look_without_generation(admin, group, time.time)
    return Lag(report.partitions, report.group, report.state, report.problem)
