#!/usr/bin/env bash
# fastavro 1.13.1, avro 1.12.2 (Apache's for Python) and the Avro deserializer of confluent-kafka 2.16.1, with its registry in memory, which
# reads with fastavro; hamba/avro 2.31.0, Go 1.26. A schema gains a date, an amount, a signature and a record with a field of its own, each
# with a default, and values of the old schema are read with the new one.
# Guess: an old value has the default as a new value would have it: 1 January 1970, 2.00, the byte ff, and one piece.
# Instead Python gives the default's JSON: the date is the int 0, and fastavro and confluent-kafka give text for the amount and for
# bytes, and a record without the defaults of its fields. avro has these, and makes UTF-8 of the bytes, of which the specification
# makes one for each character: c3bf in place of ff, and 00c388, which is 500.56, for an amount of 2.00.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export PATH=$PATH:/usr/local/go/bin GOFLAGS=-mod=mod
go version
python3 -m venv env
env/bin/pip install -q --no-compile 'confluent-kafka[avro,schemaregistry]==2.16.1' fastavro==1.13.1 avro==1.12.2
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/hamba/avro/v2"
)

func main() {
	schema, err := avro.NewSchemaCompatibility().Resolve(avro.MustParse(os.Args[2]), avro.MustParse(os.Args[1]))
	var value map[string]any
	if err == nil {
		err = avro.Unmarshal(schema, []byte{14}, &value)
	}
	fmt.Println(value, err)
}
GO
go mod init finding 2> log
go get github.com/hamba/avro/v2@v2.31.0 2>> log
go mod tidy 2>> log
go build -o read .
cat > run.py <<'PYTHON'
import io, json, subprocess

import avro.io, avro.schema
import fastavro
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext


def schema(*more):
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, *more]}


def texts(*schemas):
    return [json.dumps(schema) for schema in schemas]


box = {"type": "record", "name": "Box", "fields": [{"name": "pieces", "type": "int", "default": 1}]}
old, new = schema(), schema(
    {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "default": "\u0000\u00c8"},
    {"name": "signature", "type": "bytes", "default": "\u00ff"},
    {"name": "box", "type": box, "default": {}},
)
value = b"\x0e"
hamba = subprocess.run(["./read", *texts(old, new)], capture_output=True, text=True, check=True).stdout
print("hamba/avro", hamba)
assert hamba == "map[amount:2/1 box:map[pieces:1] day:1970-01-01 00:00:00 +0000 UTC id:7 signature:[255]] <nil>\n"
json_of_defaults = {"id": 7, "day": 0, "amount": "\0\xc8", "signature": "\xff", "box": {}}
found = fastavro.schemaless_reader(io.BytesIO(value), old, new)
print("fastavro", found)
assert found == json_of_defaults
registry = SchemaRegistryClient.new_client({"url": "mock://"})
context = SerializationContext("orders", MessageField.VALUE)
written = AvroSerializer(registry, texts(old)[0])({"id": 7}, context)
found = AvroDeserializer(registry, texts(new)[0])(written, context)
print("confluent-kafka", found)
assert found == json_of_defaults
found = avro.io.DatumReader(*map(avro.schema.parse, texts(old, new))).read(avro.io.BinaryDecoder(io.BytesIO(value)))
print("avro of Python", found)
assert found == {"id": 7, "day": 0, "amount": b"\0\xc3\x88", "signature": b"\xc3\xbf", "box": {"pieces": 1}}
PYTHON
env/bin/python run.py
