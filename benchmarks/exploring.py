"""A look into a big topic: read_where against groupkafka's and the kafka source's read of everything and a filter.

python benchmarks/exploring.py --jars folder-of-jars      # or without --jars where --packages can download
"""

from __future__ import annotations

from common import alternate, fill, median, parser, report, session

from spark_kafka_group import GroupKafkaDataSource, read_where
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
    spark.dataSource.register(GroupKafkaDataSource)
    results = {}
    with KafkaCluster() as cluster:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "startingOffsets": "earliest"}
        options["subscribe"] = "explored"
        fill(cluster, "explored", 4, args.records, 100, "none")
        everything = {source: spark.read.format(source).options(**options).load() for source in ("kafka", "groupkafka")}
        late = everything["groupkafka"].selectExpr("percentile(unix_micros(timestamp), 0.99)").first()[0]
        late = spark.sql(f"select cast(timestamp_micros({int(late)}) as string)").first()[0]
        print(
            f"{'condition':<14}{'rows':>10}{'kafka':>10}{'where':>10}{'read_where':>12}{'kafka /':>10}   seconds",
            flush=True,
        )
        for name, template in CONDITIONS.items():
            condition = template.format(late=late)
            sides = {source: (lambda df=df, c=condition: df.where(c).count()) for source, df in everything.items()}
            sides["read_where"] = lambda c=condition: read_where(spark, options, c).count()
            counts = {side: run() for side, run in sides.items()}
            assert len(set(counts.values())) == 1, counts
            times = alternate(sides, args.rounds)
            theirs, where, ours = (median(times[side]) for side in ("kafka", "groupkafka", "read_where"))
            results[name] = {"rows": counts["kafka"], "seconds": times, "ratio": theirs / ours}
            print(
                f"{name:<14}{counts['kafka']:>10,}{theirs:>10.2f}{where:>10.2f}{ours:>12.2f}{theirs / ours:>9.1f}x",
                flush=True,
            )
    report("exploring", results)
    spark.stop()


if __name__ == "__main__":
    main()
