#!/usr/bin/env bash
# ptars 0.0.25 (PyPI) with its default settings, pyarrow 26.0.1, protobuf 7.36.2; messages that protobuf itself has written.
# Guess: google.protobuf.Timestamp reads as the time that it is, or raises, as pyarrow does for a time that does not fit. And a
# group of proto2 reads as the struct that the Arrow schema has for it.
# Instead a time that does not fit into nanoseconds becomes the nearest that does, without an error: 9999-01-01, a usual "no
# end", is 2262-04-11, and 1600-01-01 is 1677-09-21; timestamp_unit="us" reads both right. A group is null, and an absent field of
# proto2 is null, not its default.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q --no-compile ptars==0.0.25 pyarrow==26.0.1 protobuf==7.36.2
cat > "$folder/program.py" <<'PYTHON'
from datetime import datetime, timezone
from importlib.metadata import version

import pyarrow
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from ptars import HandlerPool, PtarsConfig

INT32, GROUP, MESSAGE, OPTIONAL = 5, 10, 11, 1
files = [descriptor_pb2.FileDescriptorProto(name=f"{syntax}.proto", package=syntax, syntax=syntax) for syntax in ("proto2", "proto3")]
file2, file3 = files
file3.dependency.append("google/protobuf/timestamp.proto")
until = file3.message_type.add(name="Price").field.add(name="until", number=1, type=MESSAGE, label=OPTIONAL)
until.type_name = ".google.protobuf.Timestamp"
order = file2.message_type.add(name="Order")
order.field.add(name="line", number=1, type=GROUP, label=OPTIONAL, type_name=".proto2.Order.Line")
order.field.add(name="pieces", number=2, type=INT32, label=OPTIONAL, default_value="1")
order.nested_type.add(name="Line").field.add(name="article", number=1, type=INT32, label=OPTIONAL)
pool = descriptor_pool.DescriptorPool()
pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
for file in files:
    pool.AddSerializedFile(file.SerializeToString())
Price, Order = (message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in ("proto3.Price", "proto2.Order"))


def read(message, *config):
    columns = HandlerPool([message.DESCRIPTOR.file], *config).get_for_message(message.DESCRIPTOR)
    return columns.list_to_record_batch([message.SerializeToString()])


print("ptars", version("ptars"))
for year, found in ((2026, "2026-01-01"), (9999, "2262-04-11"), (1600, "1677-09-21")):
    price = Price()
    price.until.FromDatetime(datetime(year, 1, 1, tzinfo=timezone.utc))
    columns = [read(price, *config).column("until") for config in ((), (PtarsConfig(timestamp_unit="us"),))]
    times = [str(column.cast(pyarrow.timestamp("s", "UTC"), safe=False)[0])[:10] for column in columns]
    print(price.until.ToJsonString(), "read as", times[0], "and in microseconds as", times[1])
    assert times == [found, price.until.ToJsonString()[:10]]
order = Order()
order.line.article = 5
assert Order.FromString(order.SerializeToString()).line.article == 5 and order.pieces == 1
row = read(order)
print("order with a line of article 5, and 1 piece by default, read as", row.to_pylist(), "by", row.schema.field("line").type)
assert row.to_pylist() == [{"line": None, "pieces": None}] and str(row.schema.field("line").type) == "struct<article: int32>"
PYTHON
"$folder/env/bin/python" "$folder/program.py"
