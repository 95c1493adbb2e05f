"""A real streaming query, in a process of its own, with the arguments of ``query.py`` and a sink like its.

SIGINT and SIGTERM stop it as users do: wherever it is.
"""

from __future__ import annotations

import json
import random
import signal
import threading

from pyspark.sql import DataFrame, SparkSession

from faults.programs.bare_query import Sink, arguments, batch_of
from spark_kafka_group import GroupKafkaDataSource


def main() -> None:
    args = arguments()
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: ending.set())
    rng = random.Random(args.seed)
    sink = Sink(args.rows)
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.python.unix.domain.socket.enabled", "true")
        # Or it refuses a checkpoint whose first micro-batch was killed when it began.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(GroupKafkaDataSource)

    def write(df: DataFrame, batch_id: int) -> None:
        planned = json.loads((args.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[-1])
        rows = [(row.partition, row.offset, row.value.decode()) for row in df.collect()]
        threading.Event().wait(rng.random() * args.batch_seconds / 2)
        sink.write(batch_of(planned), rows)
        threading.Event().wait(rng.random() * args.batch_seconds / 2)

    query = (
        spark.readStream.format("groupkafka")
        .options(**args.options)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(args.checkpoint))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    while not ending.wait(0.1):
        if not query.isActive:
            break
    failure = query.exception()
    query.stop()
    spark.stop()
    if failure is not None:
        raise failure


if __name__ == "__main__":
    main()
