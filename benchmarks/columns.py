"""A batch read of the columns that a query needs (option `columns`) against one of all columns.

python benchmarks/columns.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from common import Report, fill, noop, parser, session
from pyspark.sql import SparkSession

from spark_kafka_group.testing import KafkaCluster

PARTITIONS = 4
CASES = (
    # size, records, least ratio wanted
    (100, 4_000_000, 1.25),
    (1_000, 1_000_000, 1.2),
)


def sides(spark: SparkSession, options: Mapping[str, str], wanted: tuple[str, ...]) -> dict[str, Callable[[], None]]:
    """All columns; of all columns the wanted ones; the wanted ones alone."""
    every = spark.read.format("groupkafka").options(**options).load()
    named = spark.read.format("groupkafka").options(**options, columns=",".join(wanted)).load()
    assert named.count() == every.count()
    return {
        "all": lambda: noop(every),
        "all, then select": lambda: noop(every.select(*wanted)),
        "named": lambda: noop(named),
    }


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--scale", type=float, default=1.0, help="times the records of each case")
    args = arguments.parse_args()
    spark = session(args.jars)
    report = Report("columns", "How much faster is a read of the columns that a query needs (2 cores, noop sink)?")
    with KafkaCluster() as cluster:
        for size, whole, goal in CASES:
            topic, records = f"c{size}", max(1000, int(whole * args.scale))
            fill(cluster, topic, PARTITIONS, records, size, "none")
            options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
            for wanted, of_goal in ((("value", "offset"), goal), (("key", "value"), None), (("offset",), None)):
                case = f"{size:,} B, {', '.join(wanted)}"
                report.compare(case, sides(spark, options, wanted), args.rounds, goal=of_goal, per=("rows", records))
    spark.stop()


if __name__ == "__main__":
    main()
