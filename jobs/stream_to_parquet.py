"""Stream Kafka topics into parquet as a member of a consumer group; a line of progress per batch.

    spark-submit --properties-file conf/spark-defaults.conf jobs/stream_to_parquet.py \
        --bootstrap-servers localhost:9092 --group billing --topics orders \
        --output /data/orders --checkpoint /data/orders.checkpoint [--available-now]

Without --available-now it runs until it is stopped (Ctrl-C, SIGTERM). Start it again with the same checkpoint and it
goes on where it stopped: parquet files hold every record once. A new checkpoint needs a new output directory.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession

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


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    submit.require_own_output(spark, args.output, args.checkpoint)
    trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
    query = (
        records(spark, args)
        .writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .trigger(**trigger)
        .start()
    )
    submit.follow(query, progress=args.progress)


def main() -> None:
    args = arguments()
    with submit.orderly(args.group):
        spark = submit.session(f"stream {args.topics} to parquet")
        run(spark, args)
        spark.stop()


if __name__ == "__main__":
    main()
