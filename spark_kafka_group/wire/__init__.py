"""The only room that knows kafka-python's inside.

``group`` serves the driver: metadata, log offsets, membership, commits. ``brokers`` and ``fetch`` serve executors:
kafka-python connects, agrees on versions and authenticates, then the socket is taken over in blocking mode, because
kafka-python's transport receives 4 KiB at a time.

kafka-python's errors become errors of this package here; nothing of kafka-python leaves this room.
"""

from spark_kafka_group.wire.brokers import Brokers
from spark_kafka_group.wire.connect import LARGEST_BATCH
from spark_kafka_group.wire.fetch import FetchConnection
from spark_kafka_group.wire.fetched import FetchedPartition
from spark_kafka_group.wire.group import GroupClient
from spark_kafka_group.wire.membership import Committed, Generation, GroupMember, Strategy

__all__ = [
    "LARGEST_BATCH",
    "Brokers",
    "Committed",
    "FetchConnection",
    "FetchedPartition",
    "Generation",
    "GroupClient",
    "GroupMember",
    "Strategy",
]
