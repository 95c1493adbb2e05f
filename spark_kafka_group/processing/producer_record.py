"""A record that a handler returns, to be written to a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record for a topic, with the names of Kafka's ``ProducerRecord``. Its timestamp is the time when it is written.

    Attributes
    ----------
    value, key
        Text is written as UTF-8. A value of None is a tombstone.
    topic
        None for the topic of the processor's ``write_options``.
    headers
        Key and value of each, in order; keys may repeat.
    partition
        None leaves it to the key: records of one key go to one partition, the one that Java's producer chooses.
    """

    value: bytes | str | None
    key: bytes | str | None = None
    topic: str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
