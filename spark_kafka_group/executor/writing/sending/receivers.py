"""Connections that this Python worker sends over, and its producer id: kept from task to task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spark_kafka_group.executor.writing.sending.producer_session import ProducerSession
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.wire.kept_connections import KeptConnections
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


_kept: KeptConnections[ClientOptions, Receivers] = KeptConnections(lambda receivers: receivers.brokers.close())
close_all = _kept.close_all


def receivers_for(options: ClientOptions) -> Receivers:
    """Those of the last task with these options, unless another one has them; else new ones."""
    return _kept.take(options) or Receivers(ReceivingBrokers(options))


def keep(receivers: Receivers) -> None:
    """Let the next task have them."""
    receivers.brokers.drop_busy()
    _kept.keep(receivers.brokers.options, receivers)
