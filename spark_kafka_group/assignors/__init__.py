"""Assignment strategies that this driver runs when it leads the group. Values in, values out, one strategy a file.

kafka-python's own are not used: range and round robin forget members when static and dynamic ones are mixed, and a
driver is static; sticky writes bytes that Java's cannot read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_kafka_group.assignors.built_in import BY_JAVA_CLASS, BY_NAME, Claims, built_in, claims_of, is_cooperative
from spark_kafka_group.assignors.strategy import NO_GENERATION, GroupMember, Strategy
from spark_kafka_group.errors import OptionError
from spark_kafka_group.values import user_classes

__all__ = [
    "BUILT_IN",
    "NO_GENERATION",
    "Claims",
    "GroupMember",
    "Strategy",
    "built_in",
    "claims_of",
    "is_cooperative",
    "resolve",
]

OPTION = "kafka.partition.assignment.strategy"

BUILT_IN: Mapping[str, Strategy] = {name: row.strategy for name, row in BY_NAME.items()}
"""Strategies by their names in the group protocol."""


def resolve(names: Sequence[str]) -> list[Strategy]:
    """The strategies that `names` name, most preferred first. `names`: built-in names, Java's class names for these, or
    ``module:Class`` of the user's own. Raises OptionError when a name is none of these, or its class cannot be taken as
    a strategy."""
    strategies: dict[str, Strategy] = {}
    for named in names:
        strategy = _resolve(named)
        if strategy.name in strategies:
            raise OptionError(
                f"{OPTION} ({', '.join(names)}) names strategy {strategy.name} twice: take one of them out"
            )
        strategies[strategy.name] = strategy
    if not strategies:
        raise OptionError(
            f"{OPTION} () names no strategy: it must be {', '.join(BUILT_IN)}, or module:Class of your own"
        )
    return list(strategies.values())


def _resolve(named: str) -> Strategy:
    known = built_in(named)
    if known is not None:
        return known.strategy
    if ":" not in named:
        raise OptionError(
            f"{OPTION} ({named}) is not known: it must be {', '.join(BUILT_IN)}, one of Java's classes for these "
            f"({', '.join(BY_JAVA_CLASS)}), or module:Class of your own"
        )
    strategy: Strategy = user_classes.make(OPTION, named, ["assign"])
    name = getattr(strategy, "name", None)
    if not isinstance(name, str) or not name:
        raise OptionError(
            f"{OPTION} ({named}) has no name: set attribute name, a str that all members of the group know"
        )
    if name in BUILT_IN:
        raise OptionError(
            f"{OPTION} ({named}) is called {name}, as one of Kafka's own strategies: change its attribute name"
        )
    return strategy
