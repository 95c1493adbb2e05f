"""Draws docs/pictures/ from a run: two streaming queries of a group on a real broker, one of which comes and goes.

python docs/draw_pictures.py [--partitions 6] [--directory docs/pictures]

The files of events and the progress of the first query are written beside the pictures with --keep.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from pyspark.sql import SparkSession

from spark_kafka_group import GroupKafkaDataSource, pictures
from spark_kafka_group.testing import KafkaCluster, wait_until

TOPIC, GROUP = "orders", "billing"
STEP_S = 300


def produce(servers: str, partitions: int, ending: threading.Event) -> None:
    """Bursts of records; later partitions get fewer."""
    rng, producer = random.Random(1), KafkaProducer(bootstrap_servers=servers, linger_ms=20)
    weights = [1 / (1 + 4 * number / partitions) for number in range(partitions)]
    while not ending.wait(0.1):
        for partition in rng.choices(range(partitions), weights, k=rng.choice((200, 500, 2_000))):
            producer.send(TOPIC, b"order", partition=partition)
    producer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--directory", type=Path, default=Path(__file__).parent / "pictures")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, KafkaCluster() as kafka:
        kafka.create_topic(TOPIC, partitions=args.partitions)
        directory = args.directory if args.keep else Path(temporary)
        progress = run(kafka.bootstrap_servers, args.partitions, directory, Path(temporary))
        files = [directory / "a.jsonl", directory / "b.jsonl"]
        for theme, suffix in (("light", ""), ("dark", "-dark")) if args.keep else (("light", ""),):
            names = {"owners": pictures.owners(files, theme), "lag": pictures.lag(progress, theme)}
            if args.keep:
                names |= {"overview": pictures.overview(files, theme), "records": pictures.records(files, theme)}
                names |= {"batches": pictures.batches(files, theme)}
                names |= {"durations": pictures.durations(progress, theme), "skew": pictures.skew(progress, theme)}
            for name, figure in names.items():
                figure.write(args.directory / f"{name}{suffix}.png", "png")


def run(servers: str, partitions: int, directory: Path, checkpoints: Path) -> list[Any]:
    """The progress of the first query; both write their events into `directory`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(GroupKafkaDataSource)
    ending = threading.Event()
    producing = threading.Thread(target=produce, args=(servers, partitions, ending))
    producing.start()

    def start(name: str) -> Any:
        read = spark.readStream.format("groupkafka").option("kafka.bootstrap.servers", servers)
        read = read.option("subscribe", TOPIC).option("kafka.group.id", GROUP).option("maxOffsetsPerTrigger", 20_000)
        read = read.option("startingOffsets", "earliest").option("eventLog", str(directory / f"{name}.jsonl"))
        write = read.load().writeStream.format("noop").queryName(name).trigger(processingTime="500 milliseconds")
        return write.option("checkpointLocation", str(checkpoints / name)).start()

    def after(query: Any, seconds: float) -> None:
        """Wait for a batch of a query, and then for so long."""
        wait_until(lambda: query.lastProgress and query.lastProgress["numInputRows"], within=STEP_S)
        time.sleep(seconds)

    try:
        first = start("a")
        after(first, 6)
        for seconds in (6.2, 5.7):
            second = start("b")
            after(second, seconds)
            second.stop()
            time.sleep(3)
        progress = [json.loads(json.dumps(each, default=str)) for each in first.recentProgress]
        if (directory / "a.jsonl").parent != checkpoints:
            (directory / "progress.json").write_text(json.dumps(progress))
        first.stop()
        return progress
    finally:
        ending.set()
        producing.join()
        spark.stop()


if __name__ == "__main__":
    main()
