"""Topic partitions, the keys of metrics by partition; this is the public name of ``values.offsets``."""

from spark_kafka_group.values.offsets import TopicPartition

__all__ = ["TopicPartition"]
