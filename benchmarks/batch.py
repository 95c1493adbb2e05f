"""Batch read of a topic into a noop sink: groupkafka against Spark's own kafka source, in turns, on one broker.

python benchmarks/batch.py --jars folder-of-jars      # or without --jars where --packages can download
"""

from __future__ import annotations

from common import alternate, fill, median, noop, parser, report, session

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.testing import KafkaCluster


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--records", type=int, default=4_000_000)
    arguments.add_argument("--sizes", default="100", help="bytes of a value, comma-separated")
    arguments.add_argument("--codecs", default="none,lz4", help="comma-separated")
    args = arguments.parse_args()
    spark = session(args.jars)
    spark.dataSource.register(GroupKafkaDataSource)
    results = {}
    print(f"{'topic':<16}{'records':>10}{'kafka':>12}{'groupkafka':>12}{'ratio':>8}   million rows/s", flush=True)
    with KafkaCluster() as cluster:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "startingOffsets": "earliest"}
        for size in args.sizes.split(","):
            for codec in args.codecs.split(","):
                topic = f"b{size}-{codec}"
                records = max(1000, args.records * 100 // max(100, int(size)))
                fill(cluster, topic, 4, records, int(size), codec)
                frames = {
                    source: spark.read.format(source).options(**options, subscribe=topic).load()
                    for source in ("kafka", "groupkafka")
                }
                assert frames["groupkafka"].count() == frames["kafka"].count() == records
                sides = {source: (lambda df=df: noop(df)) for source, df in frames.items()}
                times = alternate(sides, args.rounds)
                theirs, ours = median(times["kafka"]), median(times["groupkafka"])
                results[topic] = {"records": records, "seconds": times, "ratio": theirs / ours}
                print(
                    f"{topic:<16}{records:>10,}{records / theirs / 1e6:>12.2f}{records / ours / 1e6:>12.2f}"
                    f"{theirs / ours:>7.2f}x",
                    flush=True,
                )
    report("batch", results)
    spark.stop()


if __name__ == "__main__":
    main()
