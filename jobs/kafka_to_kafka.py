"""Stream Kafka topics into another topic as a member of a consumer group; a line of progress per batch.

    spark-submit --properties-file conf/spark-defaults.conf jobs/kafka_to_kafka.py \
        --bootstrap-servers localhost:9092 --group billing --topics orders --output-topic invoices \
        --checkpoint /data/invoices.checkpoint [--exactly-once] [--available-now]

Without --available-now it runs until it is stopped (Ctrl-C, SIGTERM). Start it again with the same checkpoint and it
goes on where it stopped. With --exactly-once the output topic holds each record once for consumers that read with
isolation.level=read_committed; records and committed offsets become visible together. Without it the records of a batch
that was interrupted may be there twice.

Put what you do with the records into `transformed`.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_group import submit


def arguments() -> argparse.Namespace:
    parser = submit.parser(__doc__)
    parser.add_argument("--output-topic", required=True, help="the topic to write to")
    parser.add_argument("--checkpoint", required=True, help="directory of the query's checkpoint")
    parser.add_argument(
        "--exactly-once",
        action="store_true",
        help="write in transactions, together with the offsets; --group is the kafka.transactional.id",
    )
    parser.add_argument("--available-now", action="store_true", help="read all records up to now, then end")
    parser.add_argument("--trigger", default="1 second", help="interval of micro-batches (default: %(default)s)")
    submit.add_sink_option(parser)
    args = parser.parse_args()
    once = {"kafka.transactional.id": args.group} if args.exactly_once else {}
    args.options = submit.options(args, **{"kafka.auto.offset.reset": "earliest"}, **once)
    guarantee = {"deliveryGuarantee": "exactly-once"} if args.exactly_once else {}
    args.sink_options = submit.sink_options(args, topic=args.output_topic, **guarantee, **once)
    return args


def transformed(records: DataFrame) -> DataFrame:
    """The records to write: columns `value` and, where there are any, `key`, `headers`, `topic` and `partition`."""
    return records.select("key", "value")


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
    records = spark.readStream.format("groupkafka").options(**args.options).load()
    query = (
        transformed(records)
        .writeStream.format("groupkafka")
        .options(**args.sink_options)
        .option("checkpointLocation", args.checkpoint)
        .trigger(**trigger)
        .start()
    )
    submit.follow(query, progress=args.progress)


def main() -> None:
    args = arguments()
    with submit.orderly(args.group):
        spark = submit.session(f"stream {args.topics} to {args.output_topic}")
        run(spark, args)
        spark.stop()


if __name__ == "__main__":
    main()
