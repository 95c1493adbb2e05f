"""Typed columns, read and written: groupkafka beside Spark's kafka source and sink with their functions, in turns.

python benchmarks/values.py --jars folder-of-jars     # of Spark's kafka source, and spark-avro

Processor time of the JVM, its children and the broker, as in cost.py; and the clock.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from common import Report, in_turns, noop, parser, session
from cost import Cost, Meter, of
from decoding_values import SMALL_FIELDS, WIDE_FIELDS, record, value_of, values_of
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.functions import col, from_json, to_json
from writing import write

from spark_kafka_group.testing import KafkaCluster

PARTITIONS = 4
DISTINCT = 10_000
"""Different values; they come again and again."""
DDL = {"long": "BIGINT", "int": "INT", "double": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
CASES = (
    # format, fields, bytes of strings, records, wanted fields, most processor time, least speed-up by the clock
    ("avro", SMALL_FIELDS, 9, 3_000_000, None, 0.40, 2.5),
    ("avro", WIDE_FIELDS, 12, 500_000, None, 0.45, None),
    ("avro", WIDE_FIELDS, 12, 500_000, ("field1", "field7", "field30"), 0.25, None),
    ("json", SMALL_FIELDS, 9, 2_000_000, None, 0.35, 3.0),
    ("json", WIDE_FIELDS, 12, 500_000, None, 0.40, None),
    ("json", WIDE_FIELDS, 12, 500_000, ("field1", "field7", "field30"), 0.30, None),
)
ROW = """struct(
  id, lpad(cast(id * 7919 % 1000000000 as string), 9, '0') user, id / 7 amount,
  timestamp_millis(1700000000000 + id) time, id % 3 = 0 paid,
  if(id % 2 = 0, null, cast(id as string)) note, cast(id % 16384 as int) count
) value"""
"""A row of `SMALL_FIELDS`."""
WRITTEN = (
    # format, rows, most processor time
    ("avro", 2_000_000, 0.50),
    ("json", 2_000_000, 0.50),
)


def values(kind: str, fields: list[tuple[str, Any]], size: int) -> list[bytes]:
    """Distinct values."""
    if kind == "avro":
        return [bytes(value.as_py()) for value in values_of(record(fields), size, DISTINCT)]
    rng = random.Random(7)
    return [
        json.dumps({name: value_of(rng, of_field, size) for name, of_field in fields}, separators=(",", ":")).encode()
        for _ in range(DISTINCT)
    ]


def schema_of(kind: str, fields: list[tuple[str, Any]]) -> str:
    """The schema, for both sides."""
    if kind == "avro":
        return json.dumps(record(fields))
    plain = [(name, f[1] if isinstance(f, list) else f["type"] if isinstance(f, dict) else f) for name, f in fields]
    return ", ".join(f"{name} {DDL[of_field]}" for name, of_field in plain)


def fill(cluster: KafkaCluster, topic: str, distinct: list[bytes], records: int) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=20, batch_size=1 << 16)
    for number in range(records):
        producer.send(topic, distinct[number % len(distinct)], partition=number % PARTITIONS)
    producer.close()


def sides_of(
    spark: SparkSession, options: dict[str, str], kind: str, schema: str, wanted: tuple[str, ...] | None
) -> dict[str, DataFrame]:
    """The same columns of both sides."""
    raw = spark.read.format("kafka").options(**options).load()
    parsed = from_avro(col("value"), schema) if kind == "avro" else from_json(col("value").cast("string"), schema)
    columns = ",".join(f"value.{name}" for name in wanted) if wanted else "value"
    ours = spark.read.format("groupkafka").options(**options, valueFormat=kind, valueSchema=schema, columns=columns)
    named = [f"value.{name}" for name in wanted] if wanted else ["value.*"]
    return {
        "kafka": raw.select(parsed.alias("value")).select(*named),
        "groupkafka": ours.load().select(*named),
    }


def cost_and_clock(meter: Meter, clocks: list[float], run: Callable[[], Any]) -> Cost:
    before, began = meter.now(), time.perf_counter()
    run()
    clocks.append(time.perf_counter() - began)
    return meter.now() - before


def write_values(spark: SparkSession, cluster: KafkaCluster, meter: Meter, scale: float) -> None:
    """Cached rows become the values of a topic."""
    for kind, whole, most in WRITTEN:
        rows = max(1000, int(whole * scale))
        df = spark.range(0, rows, 1, PARTITIONS).selectExpr(ROW)
        df.cache().count()
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": cluster.create_topic(f"written-{kind}", partitions=PARTITIONS),
        }
        schema = schema_of(kind, SMALL_FIELDS)
        made = to_avro(col("value"), schema) if kind == "avro" else to_json(col("value"))
        more = {"valueSchema": schema} if kind == "avro" else {}
        meter.compare(
            f"write {kind}, {len(SMALL_FIELDS)} fields", "M rows", rows / 1e6,
            {
                "kafka": partial(write, df.select(made.alias("value")), "kafka", **options),
                "groupkafka": partial(write, df, "groupkafka", **options, valueFormat=kind, **more),
            },
            goal=1 / most,
        )  # fmt: skip
        df.unpersist()


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--scale", type=float, default=1.0, help="times the records of each case")
    args = arguments.parse_args()
    spark = session(args.jars, **{"spark.sql.session.timeZone": "UTC"})
    report = Report("values", "What do typed columns cost, beside from_avro and from_json (a million records)?")
    with KafkaCluster() as cluster:
        meter = Meter(spark, cluster, report, args.rounds)
        for number, (kind, fields, size, whole, wanted, most, least) in enumerate(CASES):
            distinct, records = values(kind, fields, size), max(1000, int(whole * args.scale))
            topic = f"{kind}{number}"
            fill(cluster, topic, distinct, records)
            frames = sides_of(spark, of(cluster, topic), kind, schema_of(kind, fields), wanted)
            counts = {
                name: df.selectExpr("count(1)", f"sum(hash({df.columns[0]}))").first() for name, df in frames.items()
            }
            assert counts["kafka"] == counts["groupkafka"], counts
            clocks: dict[str, list[float]] = {name: [] for name in frames}
            runs = {
                name: partial(cost_and_clock, meter, clocks[name], partial(noop, df)) for name, df in frames.items()
            }
            spent = in_turns(runs, args.rounds)
            length = round(statistics.mean(map(len, distinct)))
            case = f"{kind}, {len(fields)} fields, {length} B" + (f", {len(wanted)} wanted" if wanted else "")
            meter.row(case, "M records", records / 1e6, spent, goal=1 / most)
            clock = {name: statistics.median(seconds[1:]) for name, seconds in clocks.items()}
            told = f", goal {least}" if least else ""
            print(f"{'':<34}by the clock {clock['kafka'] / clock['groupkafka']:.2f}x{told}", flush=True)
        write_values(spark, cluster, meter, args.scale)
    spark.stop()


if __name__ == "__main__":
    main()
