"""The strategies of Kafka's own that members may name, each once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spark_kafka_group.assignors.cooperative_sticky import CooperativeSticky
from spark_kafka_group.assignors.range import Range
from spark_kafka_group.assignors.roundrobin import RoundRobin
from spark_kafka_group.assignors.sticky import Sticky
from spark_kafka_group.assignors.strategy import Strategy


class Claims(Enum):
    """Where a member names the partitions that it owns, when it joins."""

    NONE = "nowhere"
    IN_USER_DATA = "in the strategy's user data (KIP-54)"
    IN_FIELDS = "in fields of the subscription (KIP-429)"


@dataclass(frozen=True)
class BuiltIn:
    """One strategy.

    Attributes
    ----------
    java
        Its class in Java, as configurations of consumers have it, without the package.
    cooperative
        Whether members keep their partitions during a rebalance (KIP-429).
    """

    strategy: Strategy
    java: str
    claims: Claims = Claims.NONE
    cooperative: bool = False

    @property
    def name(self) -> str:
        """In the group protocol."""
        return self.strategy.name

    @property
    def java_class(self) -> str:
        """With the package."""
        return f"org.apache.kafka.clients.consumer.{self.java}"


TABLE = (
    BuiltIn(Range(), "RangeAssignor"),
    BuiltIn(RoundRobin(), "RoundRobinAssignor"),
    BuiltIn(Sticky(), "StickyAssignor", Claims.IN_USER_DATA),
    BuiltIn(CooperativeSticky(), "CooperativeStickyAssignor", Claims.IN_FIELDS, cooperative=True),
)
BY_NAME = {row.name: row for row in TABLE}
BY_JAVA_CLASS = {row.java_class: row for row in TABLE}


def built_in(named: str) -> BuiltIn | None:
    """The row of this name, or of this class of Java's; None for a strategy of the user's own."""
    return BY_NAME.get(named) or BY_JAVA_CLASS.get(named)


def claims_of(strategy: str) -> Claims:
    """Where members name their partitions under a strategy, by its name in the group protocol."""
    return BY_NAME[strategy].claims if strategy in BY_NAME else Claims.NONE


def is_cooperative(strategy: str) -> bool:
    """Whether members keep their partitions during a rebalance under a strategy, by its name in the group protocol."""
    return strategy in BY_NAME and BY_NAME[strategy].cooperative
