#!/usr/bin/env bash
# dataclasses-avroschema 0.71.1 (PyPI), a field of a union of two records, serialization types avro and avro-json.
# Guess: an event that is written as a Cancellation is read as a Cancellation, by either serialization.
# Instead it is so in Avro's bytes; from avro-json, whose text names the record ({"Cancellation": ...}), the library makes the first
# class of the union that takes the fields: an Order.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q --no-compile dataclasses-avroschema==0.71.1 fastavro==1.13.1
cat > "$folder/program.py" <<'PYTHON'
from dataclasses import dataclass
from importlib.metadata import version

from dataclasses_avroschema import AvroModel


@dataclass
class Order(AvroModel):
    id: int


@dataclass
class Cancellation(AvroModel):
    id: int


@dataclass
class Event(AvroModel):
    what: Order | Cancellation


print("dataclasses-avroschema", version("dataclasses-avroschema"))
event = Event(Cancellation(7))
for kind, expected in (("avro", Cancellation), ("avro-json", Order)):
    written = event.serialize(serialization_type=kind)
    read = Event.deserialize(written, serialization_type=kind)
    print(f"{kind}: {event} is written as {written}, and read as {read}")
    assert read.what == expected(7) and type(read.what) is expected
PYTHON
"$folder/env/bin/python" "$folder/program.py"
