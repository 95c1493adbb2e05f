"""Connections that this Python worker sends over, and its producer id: kept from task to task."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass, field
from typing import Any

from spark_kafka_group.executor.sending.producer_session import ProducerSession
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.wire.produce.receiving_brokers import ReceivingBrokers


@dataclass
class Receivers:
    """Of one task at a time.

    Attributes
    ----------
    session
        The producer of the last task, if that has ended well.
    halvings
        How often brokers had record batches of a topic halved, as these were too large.
    """

    brokers: ReceivingBrokers[Any]
    session: ProducerSession | None = None
    halvings: dict[str, int] = field(default_factory=dict)


_kept: dict[tuple[int, ClientOptions], Receivers] = {}
"""By the process too: a worker forked from one with open connections must not use them."""


def receivers_for(options: ClientOptions) -> Receivers:
    """Those of the last task with these options, unless another one has them; else new ones."""
    return _kept.pop((os.getpid(), options), None) or Receivers(ReceivingBrokers(options))


def keep(receivers: Receivers) -> None:
    """Let the next task have them."""
    receivers.brokers.drop_busy()
    replaced = _kept.get(key := (os.getpid(), receivers.brokers.options))
    _kept[key] = receivers
    if replaced is not None:
        replaced.brokers.close()


def close_all() -> None:
    """Close connections of this process that no task has."""
    while _kept:
        (process, _), found = _kept.popitem()
        if process == os.getpid():
            found.brokers.close()


atexit.register(close_all)  # or kafka-python's loop is torn down in any order, and says so
