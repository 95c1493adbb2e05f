"""A real Kafka for tests and demos: one broker or three, downloaded once, on free ports.

::

    with KafkaCluster() as kafka:
        kafka.create_topic("orders", partitions=3)
        ...

With pytest: ``-p spark_kafka_group.testing.plugin``. From a shell: ``python -m spark_kafka_group.testing start``. In a
notebook: :func:`open_sandbox`, whose Spark, topics and broker end with the kernel.
"""

from spark_kafka_group.testing.cluster import GroupRow, KafkaCluster
from spark_kafka_group.testing.group_log import GroupGeneration, OffsetCommitted, read_group_log
from spark_kafka_group.testing.node import Node, wait_until
from spark_kafka_group.testing.sandbox import Sandbox, open_sandbox

__all__ = [
    "GroupGeneration",
    "GroupRow",
    "KafkaCluster",
    "Node",
    "OffsetCommitted",
    "Sandbox",
    "open_sandbox",
    "read_group_log",
    "wait_until",
]
