#!/usr/bin/env bash
# srfake (github.com/twmb/franz-go/pkg/sr 1.8.0), Go 1.26, and the Avro serializer of confluent-kafka 2.16.1.
# Guess: a schema registry parses what is registered under type AVRO, so a test with it finds a schema that cannot be read. And
# serializers that write the schema's GUID into a header work with it, as it finds schemas by GUID.
# Instead it registers any JSON. And its answer to a registration has no GUID, so a serializer that registers its schema says
# "Schema GUID is not set"; one that takes the subject's latest version (auto.register.schemas=false) works.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export PATH=$PATH:/usr/local/go/bin GOFLAGS=-mod=mod
go version
python3 -m venv env
env/bin/pip install -q --no-compile 'confluent-kafka[avro,schemaregistry]==2.16.1'
cat > main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

func main() {
	registry := srfake.New()
	fmt.Println(registry.URL())
	io.Copy(io.Discard, os.Stdin)
	registry.Close()
}
GO
go mod init finding 2> log
go get github.com/twmb/franz-go/pkg/sr@v1.8.0 2>> log
go mod tidy 2>> log
go build -o srfake .
cat > run.py <<'PYTHON'
import json, subprocess, urllib.request

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

process = subprocess.Popen(["./srfake"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
url = process.stdout.readline().strip()


def registered(subject, schema):
    content = json.dumps({"schema": schema, "schemaType": "AVRO"}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/subjects/{subject}/versions", content)) as answer:
        return json.load(answer)


answer = registered("nonsense", '{"type": "nonsense"}')
print("registered nonsense:", answer)
assert answer == {"id": 1}
context = SerializationContext("orders", MessageField.VALUE, [])
schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
for conf in ({}, {"auto.register.schemas": False, "use.latest.version": True}):
    conf["schema.id.serializer"] = header_schema_id_serializer
    try:
        AvroSerializer(SchemaRegistryClient({"url": url}), schema, conf=conf)({"id": 1}, context)
        assert len(conf) == 3
        print("with the latest version:", context.headers)
    except SerializationError as error:
        print("with its own registration:", error)
        assert len(conf) == 1 and str(error) == "Schema GUID is not set"
process.communicate("")
PYTHON
env/bin/python run.py
