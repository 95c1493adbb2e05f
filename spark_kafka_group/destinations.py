"""Names of the topics that records go to when their handler failed: Spring's, so that its applications find them."""

from __future__ import annotations

import re
from collections.abc import Collection

RETRY = re.compile(r"(?P<topic>.+)-retry-(?P<delay_ms>[0-9]+)")


def retry_topic(topic: str, delay_ms: int) -> str:
    """Where a record of `topic` waits so long for its next attempt: ``orders-retry-60000``."""
    return f"{topic}-retry-{delay_ms}"


def dead_letter_topic(topic: str) -> str:
    """Where a record of `topic` ends that nobody tries again: ``orders-dlt``."""
    return f"{topic}-dlt"


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
