"""Send dead letters back to the topics they came from. Without --send it only counts the letters that it would send.

    spark-submit --properties-file conf/spark-defaults.conf jobs/replay_dead_letters.py \
        --bootstrap-servers localhost:9092 --topics orders-dlt \
        [--origin orders] [--exception shop.Declined] [--since 2026-01-01T00:00:00Z] [--until ...] [--send]

Letters go to the topic and partition they came from, with the key, value and headers they had there. They stay in
the dead-letter topic; a consumer group remembers which have been sent, so the same command sends a letter once however
often it is run. A run that dies before its commit is repeated by the next one: its letters may then be there twice.
Other filters are another group, unless --group says otherwise.

A letter of orders-dlt goes to orders, and to its retry topics; one whose headers name another topic stays, as the
producer of the record may have chosen it. With --origin it goes there, but never to an internal topic (__*).
"""

import argparse
import hashlib
import json
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_kafka_group import group_batch, replay, submit


def arguments() -> argparse.Namespace:
    parser = submit.parser(
        __doc__, group="the group whose offsets say which letters were sent (default: one for these filters)"
    )
    parser.add_argument("--origin", help="only letters that came from this topic")
    parser.add_argument("--exception", help="only letters with this exception, with its module or without")
    parser.add_argument("--since", type=datetime.fromisoformat, help="only letters from this time on, ISO 8601")
    parser.add_argument("--until", type=datetime.fromisoformat, help="only letters from before this time, ISO 8601")
    parser.add_argument("--send", action="store_true", help="send them; without it nothing is sent or committed")
    args = parser.parse_args()
    args.group = group_for(args)
    args.options = submit.options(args, includeHeaders="true")
    return args


def group_for(args: argparse.Namespace) -> str:
    """The same name for the same letters, and for no others."""
    filters = [args.topics, args.origin, args.exception, str(args.since), str(args.until)]
    return args.group or "replay-" + hashlib.sha256(json.dumps(filters).encode()).hexdigest()[:16]


def in_time(df: DataFrame, args: argparse.Namespace) -> DataFrame:
    if args.since:
        df = df.where(f.col("timestamp") >= f.lit(args.since))
    return df.where(f.col("timestamp") < f.lit(args.until)) if args.until else df


def show(letters: list[replay.Letters], sent: bool) -> None:
    wanted = sum(of.records for of in letters if of.outcome == replay.WANTED)
    for of in letters:
        outcome = ("sent" if sent else "would be sent") if of.outcome == replay.WANTED else f"stays: {of.outcome}"
        print(f"{of.records:>10,}  {of.topic or '?':<30}  {of.exception or '?':<40}  {outcome}")
    if refused := sum(of.records for of in letters if of.outcome in replay.REFUSED):
        print(f"{refused} refused: a producer may have chosen their topic. --origin sends them there, if not internal")
    print(f"{wanted} dead letters {'sent back' if sent else 'would be sent back: --send does it'}")


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    wanted = replay.Wanted(args.origin, args.exception)
    if args.send:
        with group_batch(spark, args.options) as batch:
            show(replay.send_back(in_time(batch.df, args), wanted, args.options), sent=True)
    else:
        df = spark.read.format("groupkafka").options(**args.options).load()
        show(replay.survey(in_time(df, args), wanted, args.options), sent=False)


def main() -> None:
    args = arguments()
    with submit.orderly(args.group):
        spark = submit.session(f"replay {args.topics}")
        run(spark, args)
        spark.stop()


if __name__ == "__main__":
    main()
