"""Memory of a worker that reads or writes, by number and size of records, and of a driver over its triggers.

python benchmarks/memory.py                        # 20 million records at most
python benchmarks/memory.py --records 50000000     # the full run, one minute longer
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import Goal, Report, fill, parser
from pyspark.sql.types import BinaryType, StructField

from spark_kafka_group.executor import decode, encode
from spark_kafka_group.executor.reading.read import ARROW_BATCH_BYTES, read
from spark_kafka_group.executor.schemas.typed_columns import resolved
from spark_kafka_group.executor.values.typed_batches import MOST_BYTES, TypedBatches
from spark_kafka_group.executor.writing.sink_columns import SinkColumns
from spark_kafka_group.executor.writing.write import write
from spark_kafka_group.options import PARTITION_BYTES, TASK_BYTES, Options
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition

MIB = 1 << 20
ALLOCATORS = 32 * MIB
"""Memory that malloc and Arrow's pool keep, and that kafka-python needs to connect."""
KEY = 8
"""Bytes of the key of a row that is written."""
SPARKS_ROWS = 10_000
"""Of an Arrow batch, unless spark.sql.execution.arrow.maxRecordsPerBatch is set."""
SIZES = (
    # bytes of a record, records
    (10, 4_000_000),
    (100, 1_000_000),
    (1_000, 200_000),
    (10_000, 20_000),
    (100_000, 2_000),
    (1_000_000, 200),
)


WIDE = 1_000
"""Fields of a schema of which each value has one."""


def bound(options: Options, partitions: int, largest_batch: int) -> int:
    """Most bytes that reading needs, worked out from the options, as docs/performance.md has it.

    Parameters
    ----------
    partitions
        Of the task, with one leader.
    largest_batch
        Bytes of the largest record batch, unpacked.
    """
    given = options.fetching.partition_max_bytes
    together = partitions * given if given else max(partitions * PARTITION_BYTES, TASK_BYTES)
    response = max(min(options.fetching.max_bytes, together), given or PARTITION_BYTES)
    # The frame it came in, and the one before while a larger takes its place; then columns of the Arrow batch being
    # filled and of the one Spark has, each up to twice as large as what is in it.
    of_types = 5 * MOST_BYTES if options.values.given() else 0
    return 2 * max(response, largest_batch) + 4 * (ARROW_BATCH_BYTES + largest_batch) + of_types + ALLOCATORS


def status(name: str) -> int:
    """Bytes that /proc says of this process: VmRSS, or VmHWM for its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def used_since(imported: int) -> dict[str, float]:
    """What a task has needed beyond its imports."""
    return {"imported": imported, "peak": status("VmHWM") - imported, "afterwards": status("VmRSS") - imported}


def as_worker(servers: str, topic: str, partitions: int, records: int, options: Mapping[str, str]) -> dict[str, float]:
    """Read a topic as one task, and drop its rows; returns the memory of this process, which has done nothing else."""
    parsed = Options.parse({"kafka.bootstrap.servers": servers, "subscribe": topic, **options})
    parsed = replace(parsed, typed=resolved(parsed))
    TypedBatches(parsed)
    decode.load(parsed.reading.decoder)
    ranges = tuple(OffsetRange(TopicPartition(topic, p), 0, records // partitions) for p in range(partitions))
    imported = status("VmRSS")
    rows = sum(batch.num_rows for batch in read(ReadTask(ranges), parsed))
    assert rows == records, f"{rows} rows instead of {records}"
    return used_since(imported)


def written_bound(options: SinkOptions, size: int) -> int:
    """Most bytes that writing needs, worked out from the options, as docs/writing.md has it.

    Parameters
    ----------
    size
        Of a row.
    """
    sealed = min(options.producing.batch_size, options.producing.buffer_memory)
    # Open record batches, which may fill half of their buffers, and those that brokers have not acknowledged.
    of_batches = 3 * options.producing.buffer_memory
    return of_batches + 2 * SPARKS_ROWS * (size + KEY) + max(sealed, size) + ALLOCATORS


def as_writer(servers: str, topic: str, rows: int, size: int, options: Mapping[str, str]) -> dict[str, float]:
    """Write rows with keys as one task; returns the memory of this process, which has done nothing else."""
    import numpy
    import pyarrow as pa

    parsed = SinkOptions.parse({"kafka.bootstrap.servers": servers, "topic": topic, **options})
    encode.load(parsed.writing.encoder)
    columns = SinkColumns.from_fields([StructField("key", BinaryType()), StructField("value", BinaryType())], parsed)
    imported = status("VmRSS")

    def column(number: int, width: int) -> pa.Array:
        ends = pa.py_buffer(numpy.arange(0, (number + 1) * width, width, dtype=numpy.int32))
        return pa.Array.from_buffers(pa.binary(), number, [None, ends, pa.py_buffer(os.urandom(number * width))])

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, SPARKS_ROWS):
            number = min(SPARKS_ROWS, rows - first)
            yield pa.record_batch([column(number, KEY), column(number, size)], names=["key", "value"])

    found = write(batches(), parsed, columns)
    assert sum(found.records.values()) == rows, f"{found.records} instead of {rows}"
    return used_since(imported)


def as_driver(servers: str, topic: str, triggers: int, batches: int) -> dict[str, list[tuple[int, int]]]:
    """Drive a query without Spark: RSS after so many triggers without data, and after so many batches."""
    from spark_kafka_group.driver.stream import StreamDriver

    parsed = Options.parse(
        {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "kafka.group.id": "memory",
            "startingOffsets": "earliest",
        }
    )
    driver = StreamDriver(parsed)
    told: dict[str, list[tuple[int, int]]] = {"batches": [], "triggers": []}
    try:
        offset = driver.initial_offset()
        for number in range(1, batches + 1):
            end = driver.latest_offset(offset, 1)
            assert end != offset
            driver.plan(offset, end)
            driver.report_latest_offset()
            offset = end
            if number in (batches // 10, batches):
                gc.collect()
                told["batches"].append((number, status("VmRSS")))
        end = driver.latest_offset(offset)
        driver.plan(offset, end)
        for number in range(1, triggers + 1):
            assert driver.latest_offset(end) == end
            driver.report_latest_offset()
            if number in (triggers // 10, triggers):
                gc.collect()
                told["triggers"].append((number, status("VmRSS")))
    finally:
        driver.stop()
    return told


def alone(role: str, **arguments: Any) -> Any:
    """The output of a process of its own."""
    command = [sys.executable, __file__, "--alone", json.dumps({"role": role, **arguments})]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        raise RuntimeError(told.stderr[-2000:])
    return json.loads(told.stdout.splitlines()[-1])


def cases(most: int) -> Iterator[tuple[str, int, int, int, str, dict[str, str]]]:
    """Name, records, bytes of each, partitions, codec and options of each task that is read."""
    for records in (most // 20, most // 4, most):
        yield f"{records / 1e6:g} M of 100 B", records, 100, 1, "none", {}
    scale = min(1.0, most / 20_000_000)
    for size, records in SIZES:
        yield f"{size:,} B", max(100, int(records * scale)), size, 1, "none", {}
    for codec in ("lz4", "zstd"):
        yield f"100 B, {codec}", int(1_000_000 * scale), 100, 1, codec, {}
    large = {"kafka.max.partition.fetch.bytes": str(16 * MIB)}
    yield "1 kB, 16 MiB a partition", int(200_000 * scale), 1_000, 1, "none", large
    yield "1 kB, 64 partitions", int(500_032 * scale) // 64 * 64, 1_000, 64, "none", {}
    small = {"kafka.fetch.max.bytes": str(8 * MIB)}
    yield "1 kB, 64 partitions, 8 MiB a fetch", int(500_032 * scale) // 64 * 64, 1_000, 64, "none", small


def typed_cases(most: int) -> Iterator[tuple[str, int, list[bytes], dict[str, str]]]:
    """Name, records, values that come again and again, and options of each task that reads typed columns; and of
    one that reads the same bytes."""
    from decoding_values import SMALL_FIELDS
    from values import schema_of, values

    records = max(1_000, int(1_000_000 * min(1.0, most / 20_000_000)))
    for kind in ("avro", "json"):
        written = values(kind, SMALL_FIELDS, 9)
        yield f"{kind}, 7 fields, as bytes", records, written, {}
        yield f"{kind}, 7 fields", records, written, {"valueFormat": kind, "valueSchema": schema_of(kind, SMALL_FIELDS)}
    wide = ", ".join(f"f{number} BIGINT" for number in range(WIDE))
    written = [b'{"f7":%d}' % number for number in range(1000)]
    yield f"json, 1 of {WIDE:,} fields", records, written, {"valueFormat": "json", "valueSchema": wide}


def spread_values(cluster: KafkaCluster, topic: str, records: int, values: list[bytes]) -> None:
    """Produce these values in turns to one partition."""
    from kafka import KafkaProducer

    cluster.create_topic(topic, partitions=1)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=20, batch_size=1 << 16)
    for number in range(records):
        producer.send(topic, values[number % len(values)])
    producer.close()


def written_cases(most: int) -> Iterator[tuple[str, int, int, int, dict[str, str]]]:
    """Name, rows, bytes of each, partitions and options of each task that writes."""
    for rows in (most // 4, most):  # fewer do not fill kafka.buffer.memory
        yield f"written: {rows / 1e6:g} M of 100 B", rows, 100, 4, {}
    scale = min(1.0, most / 20_000_000)
    lz4 = {"kafka.compression.type": "lz4"}
    yield "written: 100 partitions, lz4", int(2_000_000 * scale), 100, 100, lz4
    yield "written: 1 kB, lz4", int(400_000 * scale), 1_000, 4, lz4
    yield "written: 10 kB", int(40_000 * scale), 10_000, 4, {}


def spread(cluster: KafkaCluster, topic: str, partitions: int, records: int, size: int, codec: str) -> None:
    """As `fill`, with exactly as many records in each partition."""
    if partitions == 1:
        fill(cluster, topic, 1, records, size, codec)
        return
    cluster.create_topic(topic, partitions=partitions)
    values = [bytes(size)] * (records // partitions)
    for partition in range(partitions):
        cluster.produce(topic, values, partition=partition)


def row_of_task(report: Report, name: str, told: list[dict[str, float]], limit: int) -> float:
    """A row of the report; its peak in MiB."""
    cells = {f"{what} MiB": statistics.median(t[what] for t in told) / MIB for what in ("peak", "afterwards")}
    bound_mib = limit / MIB
    report.row(name, cells | {"bound MiB": bound_mib}, Goal("peak MiB", at_most=bound_mib), told=told)
    return cells["peak MiB"]


def row_of_growth(report: Report, name: str, peaks: list[float]) -> None:
    """A row that says whether the largest task needs more than the smallest."""
    growth = {"smallest MiB": peaks[0], "largest MiB": peaks[-1], "growth": peaks[-1] / peaks[0]}
    report.row(name, growth, Goal("growth", at_most=1.2))


def typed(report: Report, cluster: KafkaCluster, most: int, rounds: int) -> None:
    """Tasks that read typed columns, and the same bytes without."""
    for number, (name, records, values, options) in enumerate(typed_cases(most)):
        topic = f"typed-{number}"
        spread_values(cluster, topic, records, values)
        servers = cluster.bootstrap_servers
        parsed = Options.parse({"kafka.bootstrap.servers": servers, "subscribe": topic} | options)
        told = [
            alone("worker", servers=servers, topic=topic, partitions=1, records=records, options=options)
            for _ in range(rounds)
        ]
        row_of_task(report, name, told, bound(parsed, 1, largest_batch=MIB))


def writing(report: Report, cluster: KafkaCluster, most: int, rounds: int) -> None:
    """Tasks that write, and whether the largest of equal ones needs more than the smallest."""
    peaks = []
    for number, (name, rows, size, partitions, options) in enumerate(written_cases(most)):
        topic = cluster.create_topic(f"written-{number}", partitions=partitions)
        servers = cluster.bootstrap_servers
        limit = written_bound(SinkOptions.parse({"kafka.bootstrap.servers": servers, "topic": topic} | options), size)
        told = [
            alone("writer", servers=servers, topic=topic, rows=rows, size=size, options=options) for _ in range(rounds)
        ]
        cluster.delete_topic(topic)
        peak = row_of_task(report, name, told, limit)
        if name.endswith("M of 100 B"):
            peaks.append(peak)
    row_of_growth(report, "written: from fewest to most rows", peaks)


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--records", type=int, default=20_000_000, help="of the largest task")
    arguments.add_argument(
        "--triggers", type=int, default=10_000, help="without data, of the driver; and a tenth of it with"
    )
    arguments.add_argument("--alone", type=json.loads, help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.alone:
        roles: Mapping[str, Callable[..., Any]] = {"worker": as_worker, "writer": as_writer, "driver": as_driver}
        print(json.dumps(roles[args.alone.pop("role")](**args.alone)))
        return
    report = Report("memory", "How much memory do reading and writing take beyond imports, and does it grow?")
    peaks = []
    with KafkaCluster() as cluster:
        for name, records, size, partitions, codec, options in cases(args.records):
            topic = f"{size}-{codec}-{records}-{partitions}"
            if topic not in cluster.admin.list_topics():
                spread(cluster, topic, partitions, records, size, codec)
            parsed = Options.parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic} | options)
            limit = bound(parsed, partitions, largest_batch=max(MIB, 2 * size))
            told = [
                alone("worker", servers=cluster.bootstrap_servers, topic=topic, partitions=partitions, records=records,
                      options=options)
                for _ in range(args.rounds)
            ]  # fmt: skip
            peak = row_of_task(report, name, told, limit)
            if name.endswith("M of 100 B"):
                peaks.append((records / 1e6, peak))
        row_of_growth(report, "from fewest to most records", [peak for _, peak in peaks])
        report.curve("Peak memory of a worker", "million records", "MiB", {"100 B": peaks})
        typed(report, cluster, args.records, args.rounds)
        writing(report, cluster, args.records, args.rounds)
        cluster.create_topic("driver", partitions=2)
        cluster.produce("driver", [b"v"] * (args.triggers // 10 + 1))
        told = alone("driver", servers=cluster.bootstrap_servers, topic="driver", triggers=args.triggers,
                     batches=args.triggers // 10)  # fmt: skip
        for what, ((_, before), (last, after)) in told.items():
            cells = {"MiB at a tenth": before / MIB, "MiB at the end": after / MIB, "grown MiB": (after - before) / MIB}
            report.row(f"driver, {last:,} {what}", cells, Goal("grown MiB", at_most=2.0))


if __name__ == "__main__":
    main()
