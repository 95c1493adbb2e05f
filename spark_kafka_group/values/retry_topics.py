"""Names of the topics for records whose handler failed: Spring's, so that its applications read them."""

from __future__ import annotations

import re
from collections.abc import Collection

RETRY = re.compile(r"(?P<topic>.+)-retry-(?P<delay_ms>[1-9][0-9]*)")
TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
INTERNAL = "__"
"""Names of Kafka's own topics begin with it, for example ``__consumer_offsets``, and those of many vendors."""


def is_topic_name(text: str) -> bool:
    """Whether Kafka takes it for a topic's name."""
    return TOPIC_NAME.fullmatch(text) is not None


def is_internal(topic: str) -> bool:
    """Whether applications have no business in it."""
    return topic.startswith(INTERNAL)


def retry_topic(topic: str, delay_ms: int) -> str:
    """Where a record of `topic` waits so long for its next attempt: ``orders-retry-60000``."""
    return f"{topic}-retry-{delay_ms}"


def dead_letter_topic(topic: str) -> str:
    """The topic for records of `topic` without a further attempt: ``orders-dlt``."""
    return f"{topic}-dlt"


def sends_dead_letters_to(dead: str, topic: str) -> bool:
    """Whether `dead` is where the dead letters of `topic` go; those of a retry topic go where its main topic's do."""
    named = RETRY.fullmatch(topic)
    return dead in (dead_letter_topic(topic), dead_letter_topic(named["topic"]) if named else None)


def delay_of(topic: str, delays_ms: Collection[int]) -> int | None:
    """How long records of a retry topic wait; None if it is none of these delays."""
    named = _named(topic, delays_ms)
    return int(named["delay_ms"]) if named else None


def main_topic(topic: str, delays_ms: Collection[int]) -> str:
    """The topic that a retry topic belongs to; any other topic itself."""
    named = _named(topic, delays_ms)
    return named["topic"] if named else topic


def _named(topic: str, delays_ms: Collection[int]) -> re.Match[str] | None:
    """The parts of a retry topic's name; None if it is of none of these delays."""
    named = RETRY.fullmatch(topic)
    return named if named and int(named["delay_ms"]) in delays_ms else None
