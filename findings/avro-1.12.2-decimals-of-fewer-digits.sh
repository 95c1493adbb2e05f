#!/usr/bin/env bash
# avro 1.12.2 (Apache's for Python, PyPI) and fastavro 1.13.1; a decimal of scale 2, as bytes and as fixed.
# Guess: Decimal("5") and Decimal("0.5") are written as 5.00 and 0.50, as fastavro and Java's writers do, or they are refused, as
# Decimal("0.005") is, whose digits do not fit.
# Instead avro writes the digits as they stand, without an error: 5 is 0.05 to every reader, 0.5 is 0.05, and 1E+1 is 0.01. Only a
# Decimal with exactly two places is right. Amounts that come from Decimal(1), from a sum, or out of normalize() are not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q --no-compile avro==1.12.2 fastavro==1.13.1
cat > "$folder/program.py" <<'PYTHON'
import io
import json
from decimal import Decimal
from importlib.metadata import version

import fastavro
from avro.errors import AvroException
from avro.io import BinaryDecoder, BinaryEncoder, DatumReader, DatumWriter
from avro.schema import parse

DECIMAL = {"logicalType": "decimal", "precision": 8, "scale": 2}


def by_avro(schema, amount):
    written = io.BytesIO()
    DatumWriter(parse(json.dumps(schema))).write(amount, BinaryEncoder(written))
    return written.getvalue()


def by_fastavro(schema, amount):
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, amount)
    return written.getvalue()


def read(schema, value):
    own = DatumReader(parse(json.dumps(schema))).read(BinaryDecoder(io.BytesIO(value)))
    assert own == fastavro.schemaless_reader(io.BytesIO(value), schema)
    return str(own)


print("avro", version("avro"), "fastavro", version("fastavro"))
for schema in ({"type": "bytes", **DECIMAL}, {"type": "fixed", "name": "Amount", "size": 4, **DECIMAL}):
    found = {}
    for amount in ("5.00", "5", "0.5", "1E+1"):
        found[amount] = read(schema, by_avro(schema, Decimal(amount))), read(schema, by_fastavro(schema, Decimal(amount)))
        print(schema["type"], amount, "by avro", found[amount][0], "by fastavro", found[amount][1])
    assert found == {"5.00": ("5.00", "5.00"), "5": ("0.05", "5.00"), "0.5": ("0.05", "0.50"), "1E+1": ("0.01", "10.00")}
    try:
        by_avro(schema, Decimal("0.005"))
        raise SystemExit("0.005 was written")
    except AvroException as error:
        print("0.005 by avro:", error)
PYTHON
"$folder/env/bin/python" "$folder/program.py"
