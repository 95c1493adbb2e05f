"""The options of every client of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.options.connection import Connection
from spark_kafka_group.options.fetching import Fetching
from spark_kafka_group.options.security import Security


@dataclass(frozen=True)
class ClientOptions:
    """Whole sections, so that an option that is added to one of them is wherever the section is.

    The driver's clients, those of executors, of the listener and of the tools take this and no more; reads of other
    topics, offsets or groups are equal in it.
    """

    connection: Connection
    security: Security
    fetching: Fetching
