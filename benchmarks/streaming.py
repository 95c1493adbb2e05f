"""A stream with availableNow: groupkafka against Spark's own kafka source, in turns, on one broker, into the noop sink.

python benchmarks/streaming.py --jars folder-of-jars

The micro-batches of a run are counted from the second on; a run begins with a new query on the warm session.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from common import Goal, Report, fill, parser, session
from pyspark.sql import SparkSession

from spark_kafka_group.testing import KafkaCluster

PARTITIONS = 4
SOCKETS = {"true": "unix domain sockets", "false": "TCP"}
PHASES = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
CASES = (
    # micro-batches, records of each, least ratio wanted over unix domain sockets
    (10, 2_000_000, 2.5),
    (40, 100_000, 1 / 0.9),
    (200, 1_000, 1 / 0.9),
)


def filled(batches: int, scale: float) -> int:
    """How many micro-batches a topic holds."""
    return max(3, int(batches * scale))


def progress_of(spark: SparkSession, source: str, options: dict[str, str], per_batch: int) -> list[dict[str, Any]]:
    """Spark's report of each micro-batch with records."""
    with tempfile.TemporaryDirectory() as directory:
        query = (
            spark.readStream.format(source)
            .options(**options, maxOffsetsPerTrigger=str(per_batch))
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(Path(directory) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [p for p in query.recentProgress if p["numInputRows"]]


def seconds_after_first(progress: Sequence[dict[str, Any]]) -> float:
    """From the start of the second micro-batch to the end of the last one."""
    first, last = (datetime.fromisoformat(progress[i]["timestamp"]) for i in (1, -1))
    return (last - first).total_seconds() + progress[-1]["durationMs"]["triggerExecution"] / 1000


def phases(progress: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Median milliseconds of each phase of a micro-batch, the first one left out."""
    return {name: statistics.median(p["durationMs"].get(name, 0) for p in progress[1:]) for name in PHASES}


def measure(spark: SparkSession, cluster: KafkaCluster, report: Report, args: Any, sockets: str) -> None:
    """All cases over one kind of sockets between Spark and its Python workers."""
    for batches, per_batch, goal in CASES:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": f"s{per_batch}"}
        options["startingOffsets"] = "earliest"
        runs: dict[str, list[list[dict[str, Any]]]] = {"kafka": [], "groupkafka": []}
        for turn in range(args.rounds + 1):
            for source, done in runs.items():
                progress = progress_of(spark, source, options, per_batch)
                assert sum(p["numInputRows"] for p in progress) == filled(batches, args.scale) * per_batch
                if turn:
                    done.append(progress)
        took = {source: statistics.median(map(seconds_after_first, done)) for source, done in runs.items()}
        medians = {source: phases([p for progress in done for p in progress]) for source, done in runs.items()}
        cells = {f"{source} s": value for source, value in took.items()}
        for source, of in medians.items():
            cells |= {f"{source} {name}": of[name] for name in ("triggerExecution", "latestOffset", "addBatch")}
        cells["ratio"] = took["kafka"] / took["groupkafka"]
        report.row(
            f"{filled(batches, args.scale)} x {per_batch:,}, {SOCKETS[sockets]}",
            {name.replace("triggerExecution", "trigger ms").replace("latestOffset", "offsets ms")
             .replace("addBatch", "addBatch ms"): value for name, value in cells.items()},
            Goal("ratio", at_least=goal) if sockets == "true" else None,
            phases=medians,
            seconds={source: [seconds_after_first(p) for p in done] for source, done in runs.items()},
        )  # fmt: skip


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--scale", type=float, default=1.0, help="times the micro-batches of each case")
    arguments.add_argument("--sockets", default="true,false", help="spark.python.unix.domain.socket.enabled")
    args = arguments.parse_args()
    report = Report("streaming", "How fast is a stream (4 partitions x 100 B, 2 cores, noop sink, availableNow)?")
    with KafkaCluster() as cluster:
        for batches, per_batch, _ in CASES:
            fill(cluster, f"s{per_batch}", PARTITIONS, filled(batches, args.scale) * per_batch, 100)
        for sockets in args.sockets.split(","):
            spark = session(args.jars, **{"spark.python.unix.domain.socket.enabled": sockets})
            measure(spark, cluster, report, args, sockets)
            spark.stop()


if __name__ == "__main__":
    main()
