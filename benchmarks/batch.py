"""Batch read of a topic: groupkafka against Spark's own kafka source, in turns, on one broker, into one sink.

python benchmarks/batch.py --jars folder-of-jars      # or without --jars where --packages can download
"""

from __future__ import annotations

import json
import tempfile

from common import Report, fill, noop, parser, session
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_group.testing import KafkaCluster

PARTITIONS = 4
UNREAD = 50_000
"""Records of each partition that are not read where a read stops short of the end: more than one fetch brings."""
CASES = (
    # size, codec, records, least ratio wanted
    (100, "none", 4_000_000, 3.0),
    (100, "lz4", 4_000_000, 3.0),
    (100, "zstd", 4_000_000, 2.0),
    (100, "snappy", 4_000_000, 2.0),
    (100, "gzip", 4_000_000, 2.0),
    (10, "none", 8_000_000, 3.0),
    (1_000, "none", 1_000_000, 3.0),
    (100_000, "none", 10_000, 1.2),
)


def sources(spark: SparkSession, cluster: KafkaCluster, topic: str, **options: str) -> dict[str, DataFrame]:
    """The topic, read by each source."""
    common = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return {
        name: spark.read.format(name).options(**common, **options).load()
        for name in ("kafka", "groupkafka")
    }  # fmt: skip


def short_of_the_end(df: DataFrame, topic: str) -> str:
    """endingOffsets that leave the last records of each log; the kafka source need not wait at an end then."""
    last = df.groupBy("partition").agg({"offset": "max"}).collect()
    return json.dumps({topic: {str(partition): offset + 1 - UNREAD for partition, offset in last}})


def fill_with_headers(cluster: KafkaCluster, topic: str, records: int) -> None:
    """Values of 100 bytes and two headers each."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=20, batch_size=1 << 16)
    headers = [("trace", b"4bf92f3577b34da6a3ce929d0e0e4736"), ("content-type", b"application/json")]
    value = bytes(range(100))
    for number in range(records):
        producer.send(topic, value, partition=number % PARTITIONS, headers=headers)
    producer.close()


def fill_with_json(cluster: KafkaCluster, topic: str, records: int) -> None:
    """Orders as JSON texts of about 100 bytes."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=20, batch_size=1 << 16)
    for number in range(records):
        value = (
            f'{{"order": {number}, "customer": "c{number % 1000}", "amount": {number % 997 / 10}, '
            f'"country": "country-{number % 50}", "note": "{number:032}"}}'
        )
        producer.send(topic, value.encode(), partition=number % PARTITIONS)
    producer.close()


def orders_to_parquet(df: DataFrame, directory: str) -> None:
    """A batch job: parse, aggregate, write."""
    orders = df.selectExpr("from_json(cast(value as string), 'customer string, amount double, country string') as o")
    totals = orders.groupBy("o.country", "o.customer").agg({"o.amount": "sum"}).toDF("country", "customer", "amount")
    totals.write.mode("overwrite").parquet(directory)


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--scale", type=float, default=1.0, help="times the records of each case")
    args = arguments.parse_args()
    spark = session(args.jars)
    report = Report("batch", "How fast is a batch read (4 partitions, 2 cores, noop sink)?")
    with KafkaCluster() as cluster:
        for size, codec, whole, goal in CASES:
            topic, records = f"b{size}-{codec}", max(1000, int(whole * args.scale))
            fill(cluster, topic, PARTITIONS, records, size, codec)
            frames = sources(spark, cluster, topic)
            assert frames["groupkafka"].count() == frames["kafka"].count() == records
            sides = {name: (lambda df=df: noop(df)) for name, df in frames.items()}
            report.compare(f"{size:,} B, {codec}", sides, args.rounds, goal=goal, per=("rows", records))
            if (size, codec) == (100, "none"):
                few = {name: (lambda df=df: noop(df.select("value", "offset"))) for name, df in frames.items()}
                report.compare("100 B, value and offset only", few, args.rounds, per=("rows", records))
                short = sources(spark, cluster, topic, endingOffsets=short_of_the_end(frames["groupkafka"], topic))
                left = short["groupkafka"].count()
                assert left == short["kafka"].count() == records - PARTITIONS * UNREAD
                sides = {name: (lambda df=df: noop(df)) for name, df in short.items()}
                report.compare("100 B, none, not up to the end", sides, args.rounds, per=("rows", left))
        records = max(1000, int(1_000_000 * args.scale))
        fill_with_headers(cluster, "headers", records)
        frames = sources(spark, cluster, "headers", includeHeaders="true")
        sides = {name: (lambda df=df: noop(df)) for name, df in frames.items()}
        report.compare("100 B and two headers", sides, args.rounds, goal=3.0, per=("rows", records))
        fill_with_json(cluster, "orders", records)
        with tempfile.TemporaryDirectory() as out:
            frames = sources(spark, cluster, "orders")
            sides = {name: (lambda df=df, d=f"{out}/{name}": orders_to_parquet(df, d)) for name, df in frames.items()}
            report.compare("from_json, groupBy, parquet", sides, args.rounds, per=("rows", records))
    spark.stop()


if __name__ == "__main__":
    main()
