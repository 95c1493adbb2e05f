"""Decoding Protobuf on one core: ours, google's library and ptars, if it is installed. With --spark also what a batch
read costs with typed columns, beside google's library in an arrow_udf.

python benchmarks/decoding_protobuf.py
python benchmarks/decoding_protobuf.py --spark
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from decoding_values import rate

from spark_kafka_group.executor.schemas import descriptor_sets, protobuf_files
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions
from spark_kafka_group.executor.values.protobuf_decoder import ProtobufDecoder

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.protobuf_messages import classes, compiled

SEVEN = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Order { int64 id = 1; string user = 2;
  double amount = 3; google.protobuf.Timestamp time = 4; bool paid = 5; optional string note = 6; int32 count = 7;
  %s }"""
MORE = """State state = 8; repeated int32 sizes = 9; Who who = 10; map<string, int64> tags = 11; bytes raw = 12;
  float rate = 13; enum State { NEW = 0; PAID = 1; SENT = 2; } message Who { string name = 1; string mail = 2; }"""
CASES = {"7 fields": SEVEN % "", "13 fields": SEVEN % MORE}
WANTED = ("id", "note")
ROOT = Path(__file__).parents[1]
GOAL = 0.15
"""Of the processor time of google's library in an arrow_udf."""


def value_of(rng: random.Random, message: Any, is_large: bool) -> bytes:
    made = message(
        id=rng.randrange(1 << 24), user=f"{rng.randrange(10**9):09}", amount=rng.random(), paid=rng.random() < 0.5,
        time={"seconds": 1_700_000_000 + rng.randrange(1 << 24), "nanos": rng.randrange(10**9)},
        count=rng.randrange(1 << 14),
    )  # fmt: skip
    if rng.random() < 0.5:
        made.note = f"{rng.randrange(10**9):09}"
    if is_large:
        made.MergeFrom(
            message(
                state=rng.randrange(3), sizes=[rng.randrange(1000) for _ in range(4)], rate=rng.random(),
                who={"name": "Ann Bell", "mail": "ann@example.com"}, tags={"a": 1, "bb": rng.randrange(1000)},
                raw=rng.randbytes(8),
            )
        )  # fmt: skip
    return bytes(made.SerializeToString())


def row_of(message: Any, is_large: bool) -> dict[str, Any]:
    """What an arrow_udf has to do for a column of the same values."""
    row = {
        "id": message.id or None, "user": message.user or None, "amount": message.amount or None,
        "time": message.time.ToMicroseconds() if message.HasField("time") else None, "paid": message.paid or None,
        "note": message.note if message.HasField("note") else None, "count": message.count or None,
    }  # fmt: skip
    if is_large:
        names = ("NEW", "PAID", "SENT")
        row |= {
            "state": names[message.state] if message.state else None, "sizes": list(message.sizes),
            "who": {"name": message.who.name or None, "mail": message.who.mail or None}
            if message.HasField("who") else None,
            "tags": list(message.tags.items()), "raw": message.raw or None, "rate": message.rate or None,
        }  # fmt: skip
    return row


def alone(args: argparse.Namespace) -> None:
    for name, text in CASES.items():
        descriptors = compiled({"order.proto": text}, "order.proto")
        message, rng, is_large = classes(descriptors)["Order"], random.Random(7), name != "7 fields"
        plain = [value_of(rng, message, is_large) for _ in range(args.rows)]
        values, schema = pa.array(plain, pa.binary()), protobuf_files.linked(descriptor_sets.files(descriptors))

        def ours(wanted: tuple[str, ...] | None, schema: Any = schema, values: Any = values) -> Callable[[], Any]:
            made = ProtobufDecoder(schema, "Order", wanted, False, ProtobufOptions(), lambda key: None, "c")
            return lambda: made.decode(values)

        kind = ProtobufDecoder(schema, "Order", None, False, ProtobufOptions(), lambda key: None, "c").type

        def theirs(plain: Any = plain, kind: Any = kind, message: Any = message, large: bool = is_large) -> Any:
            return pa.array([row_of(message.FromString(value), large) for value in plain], kind)

        one, other = (column.to_pylist(maps_as_pydicts="strict") for column in (ours(None)()[0], theirs()))
        assert one == other
        sides = {"groupkafka": ours(None), f"groupkafka, {len(WANTED)} wanted": ours(WANTED), "google's": theirs}
        sides |= _ptars(message, values)
        for side, decode in sides.items():
            found, spread = rate(decode, args.rows, args.rounds)
            size = sum(map(len, plain)) / len(plain)
            print(f"{name}, {size:.0f} B: {side:24} {found / 1e6:6.2f} M rows/s, spread {spread:.0%}", flush=True)


def _ptars(message: Any, values: pa.Array) -> dict[str, Callable[[], Any]]:
    try:
        import ptars
    except ImportError:
        return {}
    handler = ptars.HandlerPool([message.DESCRIPTOR.file]).get_for_message(message.DESCRIPTOR)
    return {"ptars": lambda: handler.array_to_record_batch(values)}


def in_spark(args: argparse.Namespace) -> None:
    from common import Report, in_turns, noop, session
    from cost import Meter, of
    from pyspark.sql.functions import arrow_udf
    from values import fill

    from spark_kafka_group.testing import KafkaCluster

    text = CASES["13 fields"]
    descriptors = compiled({"order.proto": text}, "order.proto")
    message, rng = classes(descriptors)["Order"], random.Random(7)
    distinct = [value_of(rng, message, True) for _ in range(10_000)]

    def decode(values: pa.Array) -> pa.Array:
        return decoded(values, descriptors)

    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "benchmarks")))
    with tempfile.TemporaryDirectory() as folder, KafkaCluster() as cluster:
        file = Path(folder, "order.desc")
        file.write_bytes(descriptors)
        spark = session(Path(folder), **{"spark.sql.session.timeZone": "UTC"})  # which needs no jars
        meter = Meter(spark, cluster, Report("decoding_protobuf", "What does Protobuf cost?"), args.rounds)
        fill(cluster, "orders", distinct, args.rows)
        given = {"valueFormat": "protobuf", "valueDescriptorFile": str(file), "valueMessage": "Order"}
        raw = spark.read.format("groupkafka").options(**of(cluster, "orders"), columns="value").load()
        typed = spark.read.format("groupkafka").options(**of(cluster, "orders"), **given, columns="value").load()
        udf = arrow_udf(decode, typed.schema["value"].dataType)
        frames = {
            "arrow_udf": raw.select(udf("value").alias("value")).select("value.*"),
            "groupkafka": typed.select("value.*"),
        }
        hashed = {name: df.select("id", "user", "time", "note", "state", "who", "sizes") for name, df in frames.items()}
        sums = {name: df.selectExpr("count(1)", "sum(hash(*))").first() for name, df in hashed.items()}
        assert sums["arrow_udf"] == sums["groupkafka"], sums

        def cost(df: Any) -> float:
            before = meter.now()
            noop(df)
            return float((meter.now() - before).total)

        spent = in_turns({name: partial(cost, df) for name, df in frames.items()}, args.rounds)
        medians = {name: statistics.median(costs) / args.rows * 1e6 for name, costs in spent.items()}
        ratio = medians["groupkafka"] / medians["arrow_udf"]
        shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in medians.items())
        print(f"processor time of a million records: {shown}; {ratio:.3f}x, goal {GOAL}")
        spark.stop()


_made: dict[bytes, tuple[Any, pa.DataType]] = {}


def decoded(values: pa.Array, descriptors: bytes) -> pa.Array:
    """The column, in a worker."""
    if descriptors not in _made:
        schema = protobuf_files.linked(descriptor_sets.files(descriptors))
        kind = ProtobufDecoder(schema, "Order", None, False, ProtobufOptions(), lambda key: None).type
        _made[descriptors] = classes(descriptors)["Order"], kind
    message, kind = _made[descriptors]
    return pa.array([row_of(message.FromString(value), True) for value in values.to_pylist()], kind)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--spark", action="store_true")
    args = arguments.parse_args()
    in_spark(args) if args.spark else alone(args)


if __name__ == "__main__":
    main()
