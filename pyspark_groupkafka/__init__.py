"""Spark finds modules named ``pyspark_*`` by itself and registers their DefaultSource."""

from spark_kafka_group.source import GroupKafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
