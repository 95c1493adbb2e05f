"""Latency from producer to sink of a continuous query: groupkafka against Spark's own kafka source, in turns.

python benchmarks/latency.py --jars folder-of-jars      # or without --jars where --packages can download

A record's value is the moment at which it was sent. A batch counts as done when Spark has written it into the
checkpoint's log of commits, whatever the sink: before that it would be run again after a crash. When that was is the
time at which the file got its name, and which records the batch had is in the checkpoint's log of offsets, which both
sources write alike. So nothing is added to the queries to measure them.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from actors import acting, send_evenly
from common import Goal, Report, parser, percentiles, session
from pyspark.sql import SparkSession

from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.node import wait_until

TOPIC, PARTITIONS = "sent", 4
FIRST = 20
"""Micro-batches of a query before its round begins: connections are made, code is compiled."""
PHASES = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets", "triggerExecution")


@dataclass(frozen=True)
class Round:
    """A query's times in one round.

    Attributes
    ----------
    began_ns, ended_ns
        Records that were sent in between count.
    done
        For each partition, in order: the offset after a batch's last record, and when that batch was done.
    batches
        Milliseconds of each phase of the batches in the round, and how many records they had.
    """

    began_ns: int
    ended_ns: int
    done: dict[int, list[tuple[int, int]]]
    batches: list[dict[str, float]]

    def latencies(self, sent: dict[int, list[int]]) -> Iterator[float]:
        """Seconds of each record, given when the records of each partition were sent."""
        for partition, ends in self.done.items():
            moments, before = sent[partition], ends[0][0]
            for end, done_ns in ends[1:]:
                for sent_ns in moments[before:end]:
                    if self.began_ns <= sent_ns < self.ended_ns:
                        yield (done_ns - sent_ns) / 1e9
                before = end


def commits(checkpoint: Path) -> list[int]:
    """Batches that are done."""
    return sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))


def run(spark: SparkSession, cluster: KafkaCluster, source: str, sink: str, seconds: float) -> Round:
    """One query from its start on, with new records only."""
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = Path(directory) / "checkpoint"
        writer = (
            spark.readStream.format(source)
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "latest")
            .load()
            .writeStream.format(sink)
            .option("checkpointLocation", str(checkpoint))
        )
        query = writer.start(f"{directory}/rows") if sink == "parquet" else writer.start()
        wait_until(lambda: query.exception() or len(commits(checkpoint)) > FIRST, within=60)
        began_ns = time.time_ns()
        time.sleep(seconds)
        ended_ns = time.time_ns()
        last = commits(checkpoint)[-1]
        # One that begins later has the last record of the round at the latest.
        wait_until(lambda: query.exception() or commits(checkpoint)[-1] >= last + 3, within=60)
        query.stop()
        error = query.exception()
        if error is not None:
            raise error
        done: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for batch in commits(checkpoint):
            done_ns = (checkpoint / "commits" / str(batch)).stat().st_ctime_ns
            (line,) = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]
            for partition, end in json.loads(line).get(TOPIC, {}).items():
                done[int(partition)].append((end, done_ns))
        batches = [
            {name: float(p.durationMs.get(name, 0)) for name in PHASES} | {"records": float(p.numInputRows)}
            for p in query.recentProgress[FIRST:]
            if p.numInputRows
        ]
    return Round(began_ns, ended_ns, done, batches)


def sent_moments(spark: SparkSession, cluster: KafkaCluster) -> dict[int, list[int]]:
    """When the records of each partition were sent, by their offset."""
    rows = (
        spark.read.format("groupkafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", TOPIC)
        .load()
        .selectExpr("partition", "offset", "cast(trim(cast(value as string)) as long) as sent")
        .orderBy("partition", "offset")
        .toArrow()
    )
    sent: dict[int, list[int]] = defaultdict(list)
    for partition, offset, moment in zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True):
        assert offset == len(sent[partition])
        sent[partition].append(moment)
    return sent


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--seconds", type=float, default=20.0, help="of each side's round")
    arguments.add_argument("--rate", type=int, default=1000, help="records a second")
    arguments.add_argument("--sink", choices=("noop", "parquet"), default="noop")
    args = arguments.parse_args()
    spark = session(args.jars, **{"spark.sql.streaming.minBatchesToRetain": "10000"})  # its files tell when it was done
    report = Report("latency", "How long is a record on its way from the producer until its batch is done?")
    rounds: dict[str, list[Round]] = {"kafka": [], "groupkafka": []}
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        with acting(send_evenly, cluster.bootstrap_servers, TOPIC, PARTITIONS, args.rate) as producer:
            for number in range(args.rounds + 1):
                for source, found in rounds.items():
                    told = run(spark, cluster, source, args.sink, args.seconds if number else 2)
                    if number:
                        found.append(told)
            producer.end()
        sent = sent_moments(spark, cluster)
    latencies = {source: [list(r.latencies(sent)) for r in found] for source, found in rounds.items()}
    for name, which in (("p50", 0), ("p99", 1)):
        # Of each round by itself, so that one during which the machine was busy with something else does not decide.
        values = {
            source: statistics.median(percentiles(one)[which] for one in found) for source, found in latencies.items()
        }
        cells = {f"{source} ms": 1e3 * value for source, value in values.items()}
        cells["ratio"] = values["kafka"] / values["groupkafka"]
        measured = {source: [percentiles(one)[which] for one in found] for source, found in latencies.items()}
        report.row(f"{args.rate:,} records/s, {name}", cells, Goal("ratio", at_least=1 / 0.8), seconds=measured)
    counts = {source: sum(map(len, found)) for source, found in latencies.items()}
    expected = args.rate * args.seconds * args.rounds
    assert all(abs(count - expected) <= 0.05 * expected for count in counts.values()), (counts, expected)
    for phase in (*PHASES, "records"):
        medians = {s: statistics.median(b[phase] for r in found for b in r.batches) for s, found in rounds.items()}
        unit = "" if phase == "records" else " ms"
        cells = {f"{source}": value for source, value in medians.items()}
        report.row(f"a batch's {phase}{unit}, median", cells)
    spark.stop()


if __name__ == "__main__":
    main()
