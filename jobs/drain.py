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

from pyspark.sql import SparkSession

from spark_kafka_group import GroupBatch, group_batch, submit


def arguments() -> argparse.Namespace:
    parser = submit.parser(__doc__)
    parser.add_argument("--output", required=True, help="directory; each run adds a directory of parquet files")
    args = parser.parse_args()
    args.options = submit.options(args)
    return args


def directory(group: str, batch: GroupBatch) -> str:
    """The same name for the same group and starting offsets, and for no others."""
    starts = [[r.tp.topic, r.tp.partition, r.start] for r in batch.ranges]
    return "drain=" + hashlib.sha256(json.dumps([group, starts]).encode()).hexdigest()[:16]


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    with group_batch(spark, args.options, progress=args.progress) as batch:
        if not args.progress:  # the bar is on this line
            for r in batch.ranges:
                print(f"{r.tp}: {r.start} to {r.end}")
        if batch.records:
            output = f"{args.output}/{directory(args.group, batch)}"
            df = batch.df.withColumns({"key": batch.df.key.cast("string"), "value": batch.df.value.cast("string")})
            df.write.mode("overwrite").parquet(output)
            result = f"{batch.records} records in {output}"
        else:
            result = "nothing to read"
    print(f"generation {batch.generation}: {result}")


def main() -> None:
    args = arguments()
    with submit.orderly(args.group):
        spark = submit.session(f"drain {args.topics}")
        run(spark, args)
        spark.stop()


if __name__ == "__main__":
    main()
