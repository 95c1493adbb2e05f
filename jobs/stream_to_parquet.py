"""Stream Kafka topics into parquet as a member of a consumer group; a line of progress per batch.

    spark-submit --properties-file conf/spark-defaults.conf jobs/stream_to_parquet.py \
        --bootstrap-servers localhost:9092 --group billing --topics orders \
        --output /data/orders --checkpoint /data/orders.checkpoint [--available-now]

Without --available-now it runs until it is stopped (Ctrl-C, SIGTERM). Start it again with the same checkpoint and it
goes on where it stopped: parquet files hold every record once.
"""

import argparse
import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_kafka_group import submit


def arguments() -> argparse.Namespace:
    parser = submit.parser(__doc__)
    parser.add_argument("--output", required=True, help="directory of parquet files")
    parser.add_argument("--checkpoint", required=True, help="directory of the query's checkpoint")
    parser.add_argument("--available-now", action="store_true", help="read all records up to now, then end")
    parser.add_argument("--trigger", default="1 second", help="interval of micro-batches (default: %(default)s)")
    args = parser.parse_args()
    args.options = submit.options(args, **{"kafka.auto.offset.reset": "earliest"})
    return args


def records(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """The stream, with key and value as text."""
    source = spark.readStream.format("groupkafka").options(**args.options).load()
    return source.withColumns({"key": source.key.cast("string"), "value": source.value.cast("string")})


def described(progress: StreamingQueryProgress) -> str:
    """The text about a batch for its line."""
    source = progress.sources[0]
    return (
        f"records {progress.numInputRows:>9,}  {progress.processedRowsPerSecond or 0:>9,.0f} rows/s  "
        f"lag {lag(source.endOffset, source.latestOffset):>9,}"
    )


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


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
    query = (
        records(spark, args)
        .writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .trigger(**trigger)
        .start()
    )
    submit.follow(query, described)


def main() -> None:
    args = arguments()
    with submit.orderly(args.group):
        spark = submit.session(f"stream {args.topics} to parquet")
        run(spark, args)
        spark.stop()


if __name__ == "__main__":
    main()
