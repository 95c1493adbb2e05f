"""Topic partitions, the keys of metrics by partition; this is the public name of ``values.offsets``."""

__all__ = ["TopicPartition"]
