"""The Spark session of programs that are killed."""

from pyspark.sql import SparkSession

from spark_kafka_group import GroupKafkaDataSource


def session(**settings: str) -> SparkSession:
    """A local session that has the source, with more settings whose names begin with ``spark.``."""
    common = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    spark = SparkSession.builder.master("local[2]").config(map=common | settings).getOrCreate()
    spark.dataSource.register(GroupKafkaDataSource)
    return spark
