"""A look into a big topic: read_where against groupkafka's and the kafka source's read of everything and a filter.

python benchmarks/exploring.py --jars folder-of-jars      # or without --jars where --packages can download
"""

from __future__ import annotations

from common import Report, fill, parser, session

from spark_kafka_group import read_where
from spark_kafka_group.testing import KafkaCluster

CONDITIONS = {
    "100 offsets": "partition = 2 and offset between 700000 and 700099",
    "a partition": "partition = 2",
    "the last 1 %": "timestamp >= '{late}'",
}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--records", type=int, default=4_000_000)
    args = arguments.parse_args()
    spark = session(args.jars)
    report = Report("exploring", "How fast is a look into a part of a topic (4 partitions x 1 M x 100 B, counts)?")
    with KafkaCluster() as cluster:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "startingOffsets": "earliest"}
        options["subscribe"] = "explored"
        fill(cluster, "explored", 4, args.records, 100, "none")
        everything = {source: spark.read.format(source).options(**options).load() for source in ("kafka", "groupkafka")}
        late = everything["groupkafka"].selectExpr("percentile(unix_micros(timestamp), 0.99)").first()[0]
        late = spark.sql(f"select cast(timestamp_micros({int(late)}) as string)").first()[0]
        for what, template in CONDITIONS.items():
            condition = template.format(late=late)
            sides = {
                f"{name} + where": (lambda df=df, c=condition: df.where(c).count()) for name, df in everything.items()
            }
            sides["read_where"] = lambda c=condition: read_where(spark, options, c).count()
            counts = {side: run() for side, run in sides.items()}
            assert len(set(counts.values())) == 1, counts
            report.compare(f"{what} ({counts['read_where']:,} rows)", sides, args.rounds)
    spark.stop()


if __name__ == "__main__":
    main()
