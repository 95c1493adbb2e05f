#!/usr/bin/env bash
# A field goes from timestamp-millis to timestamp-micros, and an amount from scale 2 to scale 4. Values of the old schema are read with
# the new one by fastavro 1.13.1 and avro 1.12.2 (Apache's for Python), hamba/avro 2.31.0 and twmb/avro 1.9.1 (Go 1.26). By Avro's
# rules the schemas fit, as both are a long, or bytes.
# Guess: libraries for Avro read the same value from the same bytes and schemas; all of them convert, or all refuse.
# Instead Python's take the writer's unit and scale, and Go's the reader's: 2 January 2026 is 21 January 1970 there, and 12.34 is
# 0.1234 for hamba/avro, without an error; twmb/avro refuses another scale. If the new schema has a plain long and bytes, Python
# still gives times and decimals, which that schema does not have.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export PATH=$PATH:/usr/local/go/bin GOFLAGS=-mod=mod
go version
python3 -m venv env
env/bin/pip install -q --no-compile fastavro==1.13.1 avro==1.12.2
cat > schemas.py <<'PYTHON'
import json

MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
CENTS, HUNDREDTHS = ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale} for scale in (2, 4))


def record(at, amount):
    return {"type": "record", "name": "Payment", "fields": [{"name": "at", "type": at}, {"name": "amount", "type": amount}]}


OLD, NEW, PLAIN = record(MILLIS, CENTS), record(MICROS, HUNDREDTHS), record("long", "bytes")
json.dump([OLD, NEW, record(MICROS, CENTS)], open("schemas.json", "w"))
PYTHON
cat > read.py <<'PYTHON'
import io
import json
from datetime import datetime, timezone
from decimal import Decimal

import fastavro
from avro.io import BinaryDecoder, DatumReader
from avro.schema import parse
from schemas import NEW, OLD, PLAIN

row = {"at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc), "amount": Decimal("12.34")}
written = io.BytesIO()
fastavro.schemaless_writer(written, OLD, row)
open("value", "wb").write(written.getvalue())
for name, schema in (("new", NEW), ("plain", PLAIN)):
    by_fastavro = fastavro.schemaless_reader(io.BytesIO(written.getvalue()), OLD, schema)
    by_avro = DatumReader(parse(json.dumps(OLD)), parse(json.dumps(schema))).read(BinaryDecoder(io.BytesIO(written.getvalue())))
    print(f"Python, {name} schema: fastavro", *map(str, by_fastavro.values()), "avro", *map(str, by_avro.values()))
    assert by_fastavro == by_avro == row
PYTHON
cat > main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/hamba/avro/v2"
	twmb "github.com/twmb/avro"
)

type payment struct {
	At     time.Time `avro:"at"`
	Amount *big.Rat  `avro:"amount"`
}

func must[T any](found T, err error) T {
	if err != nil {
		panic(err)
	}
	return found
}

func main() {
	var schemas []json.RawMessage
	if err := json.Unmarshal(must(os.ReadFile("schemas.json")), &schemas); err != nil {
		panic(err)
	}
	value := must(os.ReadFile("value"))
	old, new, newTime := string(schemas[0]), string(schemas[1]), string(schemas[2])
	resolved := must(avro.NewSchemaCompatibility().Resolve(avro.MustParse(new), avro.MustParse(old)))
	var byHamba, byTwmb payment
	if err := avro.Unmarshal(resolved, value, &byHamba); err != nil {
		panic(err)
	}
	_, refused := twmb.Resolve(must(twmb.Parse(old)), must(twmb.Parse(new)))
	must(must(twmb.Resolve(must(twmb.Parse(old)), must(twmb.Parse(newTime)))).Decode(value, &byTwmb))
	fmt.Println("Go: hamba/avro", byHamba.At.UTC(), byHamba.Amount.FloatString(4), "twmb/avro", byTwmb.At.UTC(), refused)
	if byHamba.At.UTC().Year() != 1970 || byHamba.Amount.FloatString(4) != "0.1234" || byTwmb.At != byHamba.At || refused == nil {
		os.Exit(1)
	}
}
GO
env/bin/python schemas.py
env/bin/python read.py
go mod init finding 2> log
go get github.com/hamba/avro/v2@v2.31.0 github.com/twmb/avro@v1.9.1 2>> log
go mod tidy 2>> log
go run .
