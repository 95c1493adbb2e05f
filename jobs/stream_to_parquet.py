"""Stream Kafka topics into parquet as a member of a consumer group; a line of progress per batch.

    spark-submit --properties-file conf/spark-defaults.conf jobs/stream_to_parquet.py \
        --bootstrap-servers localhost:9092 --group billing --topics orders \
        --output /data/orders --checkpoint /data/orders.checkpoint [--available-now]

Without --available-now it runs until it is stopped (Ctrl-C, SIGTERM). Start it again with the same checkpoint and it
goes on where it stopped: parquet files hold every record once.
"""

import argparse
import json
import os
from collections.abc import Iterator

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

SOCKETS = "spark.python.unix.domain.socket.enabled"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", required=True, help="brokers, host:port,...")
    parser.add_argument("--group", required=True, help="consumer group")
    parser.add_argument("--topics", required=True, help="topics, comma-separated")
    parser.add_argument("--output", required=True, help="directory of parquet files")
    parser.add_argument("--checkpoint", required=True, help="directory of the query's checkpoint")
    parser.add_argument("--available-now", action="store_true", help="read what there is now, then end")
    parser.add_argument("--trigger", default="1 second", help="interval of micro-batches (default: %(default)s)")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="any option of the source; may be repeated"
    )
    return parser.parse_args()


def records(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """The stream, with key and value as text."""
    options = dict(option.split("=", 1) for option in args.option)
    source = (
        spark.readStream.format("groupkafka")
        .option("kafka.bootstrap.servers", args.bootstrap_servers)
        .option("kafka.group.id", args.group)
        .option("subscribe", args.topics)
        .option("kafka.auto.offset.reset", "earliest")
        .options(**options)
        .load()
    )
    return source.withColumns({"key": source.key.cast("string"), "value": source.value.cast("string")})


def progress_lines(query: StreamingQuery, seen: set[int]) -> Iterator[str]:
    """A line for each batch with records that ended since the last call."""
    for progress in query.recentProgress:
        if progress.batchId in seen or not progress.numInputRows:
            continue
        seen.add(progress.batchId)
        source = progress.sources[0]
        yield (
            f"batch {progress.batchId:>5}  generation {generation(source.endOffset):>5}  "
            f"records {progress.numInputRows:>9,}  {progress.processedRowsPerSecond or 0:>11,.0f} rows/s  "
            f"lag {lag(source.endOffset, source.latestOffset):>9,}"
        )


def generation(end_offset: str) -> int:
    return json.loads(end_offset)["@group"]["generation"]


def lag(end_offset: str, latest_offset: str) -> int:
    """Records behind the ends of the logs when the batch was planned; 0 for a replayed batch, which has not looked."""
    end, latest = json.loads(end_offset), json.loads(latest_offset or "null") or {}
    return sum(
        offset - end[topic][partition]
        for topic, partitions in latest.items()
        if topic != "@group"
        for partition, offset in partitions.items()
        if partition in end.get(topic, {})
    )


def session(name: str) -> SparkSession:
    """Spark, with Unix domain sockets to its Python workers unless it was told otherwise: small tasks are quicker."""
    builder = SparkSession.builder.appName(name)
    if "SPARK_REMOTE" not in os.environ:  # a server of Spark Connect has its configuration already
        SparkContext._ensure_initialized()  # from here on SparkConf has what spark-submit was told
        builder = builder.config(SOCKETS, SparkConf().get(SOCKETS, "true"))
    return builder.getOrCreate()


def main() -> None:
    args = arguments()
    spark = session(f"stream {args.topics} to parquet")
    trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
    query = (
        records(spark, args)
        .writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .trigger(**trigger)
        .start()
    )
    seen: set[int] = set()
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(1))
            for line in progress_lines(query, seen):
                print(line, flush=True)
    except KeyboardInterrupt:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
