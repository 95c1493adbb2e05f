"""Spark finds modules named ``pyspark_*`` by itself and registers their DefaultSource."""

try:
    from spark_kafka_group.source import GroupKafkaDataSource as DefaultSource
except ImportError as error:
    # Spark 4.0 and 4.1 look here too, and without a source would say no more than that there is none.
    from pyspark_groupkafka.refusing import source_that_raises

    DefaultSource = source_that_raises(error)  # type: ignore[assignment, misc]

__all__ = ["DefaultSource"]
