"""The only room that knows kafka-python's inside.

``log_client`` serves the driver: metadata and log offsets; ``group.client`` adds membership and commits. ``fetch``
serves executors: kafka-python connects, agrees on versions and authenticates, then the socket is taken over in blocking
mode, because kafka-python's transport receives 4 KiB at a time. ``client`` has kafka-python's connections mended.

kafka-python's errors become errors of this package here; nothing of kafka-python leaves this room. Modules that only
the driver needs are imported when it asks for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spark_kafka_group.wire.client.connect import LARGEST_BATCH
from spark_kafka_group.wire.client.reachability import unreached
from spark_kafka_group.wire.fetch.brokers import Brokers, NearestReplicas
from spark_kafka_group.wire.fetch.fetch_connection import FetchConnection, readable
from spark_kafka_group.wire.fetch.response import FetchedPartition, FetchError

if TYPE_CHECKING:
    from spark_kafka_group.wire.group.client import GroupClient
    from spark_kafka_group.wire.group.membership import Committed, Generation
    from spark_kafka_group.wire.leader_epochs import EpochAsked
    from spark_kafka_group.wire.log_client import LogClient

__all__ = [
    "LARGEST_BATCH",
    "Brokers",
    "Committed",
    "EpochAsked",
    "FetchConnection",
    "FetchError",
    "FetchedPartition",
    "Generation",
    "GroupClient",
    "LogClient",
    "NearestReplicas",
    "readable",
    "unreached",
]

_DRIVERS = {"GroupClient": "group.client", "LogClient": "log_client", "EpochAsked": "leader_epochs"} | dict.fromkeys(
    ("Committed", "Generation"), "group.membership"
)


def __getattr__(name: str) -> Any:
    if name not in _DRIVERS:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_DRIVERS[name]}"), name)
