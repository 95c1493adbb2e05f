#!/usr/bin/env bash
# fastavro 1.13.1, the Avro serializer of confluent-kafka 2.16.1, which writes with fastavro, and avro 1.12.2 (Apache's for Python), from
# PyPI; hamba/avro 2.31.0, Go 1.26, reads. A field is an int, of 32 bits, and its value is 3,000,000,000.
# Guess: the value is refused as it is written, by the first who sees value and schema, as avro does.
# Instead fastavro writes it, as if the field was a long, and so does confluent-kafka. Both read it again, so their tests pass. A
# reader that has ints of 32 bits, as hamba/avro, drops the upper bits, without an error: 852,516,352.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export PATH=$PATH:/usr/local/go/bin GOFLAGS=-mod=mod
go version
python3 -m venv env
env/bin/pip install -q --no-compile 'confluent-kafka[avro,schemaregistry]==2.16.1' fastavro==1.13.1 avro==1.12.2
cat > write.py <<'PYTHON'
import io
import json

import fastavro
from avro.errors import AvroTypeException
from avro.io import BinaryEncoder, DatumWriter
from avro.schema import parse
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

schema = {"type": "record", "name": "File", "fields": [{"name": "size", "type": "int"}]}
row = {"size": 3_000_000_000}
try:
    DatumWriter(parse(json.dumps(schema))).write(row, BinaryEncoder(io.BytesIO()))
    raise SystemExit("avro wrote it")
except AvroTypeException as error:
    print("avro:", str(error).splitlines()[0])
written = io.BytesIO()
fastavro.schemaless_writer(written, schema, row)
registry = SchemaRegistryClient.new_client({"url": "mock://"})
context = SerializationContext("files", MessageField.VALUE, [])
value = AvroSerializer(registry, json.dumps(schema))(row, context)
assert value[5:] == written.getvalue()
assert AvroDeserializer(registry)(value, context) == fastavro.schemaless_reader(io.BytesIO(written.getvalue()), schema) == row
print("fastavro and confluent-kafka:", written.getvalue().hex())
open("value", "wb").write(written.getvalue())
PYTHON
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/hamba/avro/v2"
)

func main() {
	value, err := os.ReadFile("value")
	if err != nil {
		panic(err)
	}
	var file struct {
		Size int `avro:"size"`
	}
	schema := avro.MustParse(`{"type": "record", "name": "File", "fields": [{"name": "size", "type": "int"}]}`)
	err = avro.Unmarshal(schema, value, &file)
	fmt.Println("hamba/avro reads", file.Size, err)
	if err != nil || file.Size != 852516352 {
		os.Exit(1)
	}
}
GO
env/bin/python write.py
go mod init finding 2> log
go get github.com/hamba/avro/v2@v2.31.0 2>> log
go mod tidy 2>> log
go run .
