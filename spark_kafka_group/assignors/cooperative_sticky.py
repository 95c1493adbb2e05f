"""Strategy ``cooperative-sticky``: as ``sticky``, but no member gets a partition that another one still has
(KIP-429)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_kafka_group.assignors.claims import holders
from spark_kafka_group.assignors.sticky import Sticky
from spark_kafka_group.assignors.strategy import GroupMember
from spark_kafka_group.values.offsets import TopicPartition


class CooperativeSticky:
    """Kafka's ``CooperativeStickyAssignor``: partitions move in two rounds."""

    name = "cooperative-sticky"

    def assign(
        self, members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]
    ) -> dict[str, list[TopicPartition]]:
        """The sticky assignment without the partitions that are to move from a member that claims them.

        That member sees that they are gone, gives them up and rejoins; in that round no member claims them.
        """
        held = holders(members)
        return {
            member_id: [tp for tp in owned if held.get(tp, member_id) == member_id]
            for member_id, owned in Sticky().assign(members, partitions).items()
        }
