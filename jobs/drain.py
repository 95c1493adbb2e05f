"""Read a consumer group's backlog into parquet and commit it: from the committed offsets to now, then end.

    spark-submit --properties-file conf/spark-defaults.conf jobs/drain.py \
        --bootstrap-servers localhost:9092 --group billing --topics orders --output /data/orders

Safe to run again after any crash. Each run writes a directory named after the offsets it starts at, and commits when
the files are written. A run that dies before the commit is repeated by the next one, which starts at the same offsets
and so overwrites the same directory: no record is lost, none is there twice.
"""

import argparse
import hashlib
import json
import os

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from spark_kafka_group import GroupBatch, group_batch

SOCKETS = "spark.python.unix.domain.socket.enabled"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", required=True, help="brokers, host:port,...")
    parser.add_argument("--group", required=True, help="consumer group")
    parser.add_argument("--topics", required=True, help="topics, comma-separated")
    parser.add_argument("--output", required=True, help="directory; each run adds a directory of parquet files")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="any option of the source; may be repeated"
    )
    return parser.parse_args()


def directory(group: str, batch: GroupBatch) -> str:
    """The same name for the same group and starting offsets, and for no others."""
    starts = [[r.tp.topic, r.tp.partition, r.start] for r in batch.ranges]
    return "drain=" + hashlib.sha256(json.dumps([group, starts]).encode()).hexdigest()[:16]


def session(name: str) -> SparkSession:
    """Spark, with Unix domain sockets to its Python workers unless it was told otherwise: small tasks are quicker."""
    builder = SparkSession.builder.appName(name)
    if "SPARK_REMOTE" not in os.environ:  # a server of Spark Connect has its configuration already
        SparkContext._ensure_initialized()  # from here on SparkConf has what spark-submit was told
        builder = builder.config(SOCKETS, SparkConf().get(SOCKETS, "true"))
    return builder.getOrCreate()


def main() -> None:
    args = arguments()
    spark = session(f"drain {args.topics}")
    options = {
        "kafka.bootstrap.servers": args.bootstrap_servers,
        "kafka.group.id": args.group,
        "subscribe": args.topics,
    } | dict(option.split("=", 1) for option in args.option)
    with group_batch(spark, options) as batch:
        for r in batch.ranges:
            print(f"{r.tp}: {r.start} to {r.end}")
        if batch.records:
            output = f"{args.output}/{directory(args.group, batch)}"
            df = batch.df.withColumns({"key": batch.df.key.cast("string"), "value": batch.df.value.cast("string")})
            df.write.mode("overwrite").parquet(output)
            print(f"generation {batch.generation}: {batch.records} records in {output}")
        else:
            print(f"generation {batch.generation}: nothing to read")
    spark.stop()


if __name__ == "__main__":
    main()
