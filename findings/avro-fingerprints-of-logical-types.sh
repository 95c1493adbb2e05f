#!/usr/bin/env bash
# Apache's Avro 1.12.1 for Java (Maven Central, Java 17, asked by py4j 0.10.9.9) and 1.12.2 for Python, fastavro 1.13.1; hamba/avro 2.31.0,
# goavro 2.15.0 and twmb/avro 1.9.1, Go 1.26. The CRC-64-AVRO fingerprint of a schema, which is the schema's name in Avro's
# single-object encoding: values without a registry, on a topic.
# Guess: all have the same fingerprint, as the specification says byte for byte what is hashed, and leaves logical types out of it. Where
# they did not agree, no Java program would read a value that Python wrote, so that the first user would have told.
# Instead that is so until a field is a date, a time or a decimal. Java, fastavro and twmb/avro agree. Apache's Python and goavro hash
# {"type":"int"} in place of "int", hamba/avro hashes the logical type as well, and goavro a name that it makes for a decimal. A value of
# goavro is refused by Java's decoder for want of a schema, though it has the very schema.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export PATH=$PATH:/usr/local/go/bin GOFLAGS=-mod=mod
go version
python3 -m venv env
env/bin/pip install -q --no-compile fastavro==1.13.1 avro==1.12.2 py4j==0.10.9.9
for jar in org/apache/avro/avro/1.12.1/avro-1.12.1 com/fasterxml/jackson/core/jackson-core/2.21.2/jackson-core-2.21.2 \
    com/fasterxml/jackson/core/jackson-databind/2.21.2/jackson-databind-2.21.2 \
    com/fasterxml/jackson/core/jackson-annotations/2.21/jackson-annotations-2.21 org/slf4j/slf4j-api/2.0.17/slf4j-api-2.0.17; do
    curl -sfO "https://repo1.maven.org/maven2/$jar.jar"
done
cat > main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/linkedin/goavro/v2"
	twmb "github.com/twmb/avro"
)

func main() {
	schema := os.Args[1]
	parsed := avro.MustParse(schema)
	crc, _ := parsed.FingerprintUsing(avro.CRC64Avro)
	codec, _ := goavro.NewCodec(schema)
	other, _ := twmb.Parse(schema)
	found := map[string]string{
		"hamba":  fmt.Sprintf("%x %v", crc, parsed),
		"goavro": fmt.Sprintf("%016x %s", codec.Rabin, codec.CanonicalSchema()),
		"twmb":   fmt.Sprintf("%x %s", other.Fingerprint(twmb.NewRabin()), other.Canonical()),
	}
	for _, value := range []any{7, time.Unix(0, 0).UTC(), big.NewRat(5, 1)} {
		if message, err := codec.SingleFromNative(nil, map[string]any{"field": value}); err == nil {
			found["message"] = fmt.Sprintf("%x", message)
		}
	}
	json.NewEncoder(os.Stdout).Encode(found)
}
GO
go mod init finding 2> log
go get github.com/hamba/avro/v2@v2.31.0 github.com/linkedin/goavro/v2@v2.15.0 github.com/twmb/avro@v1.9.1 2>> log
go mod tidy 2>> log
go build -o fingerprints .
cat > run.py <<'PYTHON'
import json, subprocess
from glob import glob

import avro.schema
from fastavro.schema import fingerprint, to_parsing_canonical_form
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

port = launch_gateway(classpath=":".join(glob("*.jar")), die_on_exit=True)
java = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm.org.apache.avro


def turned(text):
    """Python's libraries give the bytes as they stand in a message, with the lowest byte first."""
    return bytes.fromhex(text)[::-1].hex()


def fingerprints(type_):
    schema = {"type": "record", "name": "Order", "fields": [{"name": "field", "type": type_}]}
    text = json.dumps(schema)
    found = json.loads(subprocess.run(["./fingerprints", text], capture_output=True, text=True, check=True).stdout)
    parsed = java.Schema.Parser().parse(text)
    decoder = java.message.BinaryMessageDecoder(java.generic.GenericData.get(), parsed)
    try:
        read = decoder.decode(bytes.fromhex(found.pop("message"))).toString()
    except Py4JJavaError as error:
        read = error.java_exception.toString()
    normal = java.SchemaNormalization
    found["Java"] = f"{normal.parsingFingerprint64(parsed) % 2**64:016x} {normal.toParsingForm(parsed)}"
    canonical = to_parsing_canonical_form(schema)
    found["fastavro"] = f"{turned(fingerprint(canonical, 'CRC-64-AVRO'))} {canonical}"
    parsed = avro.schema.parse(text)
    found["avro of Python"] = f"{turned(parsed.fingerprint('CRC-64-AVRO').hex())} {parsed.canonical_form}"
    groups = {}
    for library, fingerprint_and_form in found.items():
        groups.setdefault(fingerprint_and_form, set()).add(library)
    print(json.dumps(type_), "Java reads goavro's message:", read)
    for form, libraries in groups.items():
        print("   ", form, *sorted(libraries))
    return {frozenset(libraries) for libraries in groups.values()}, read


right = {"Java", "fastavro", "twmb"}
everyone = right | {"avro of Python", "goavro", "hamba"}
assert fingerprints("int") == ({frozenset(everyone)}, '{"field": 7}')
groups, read = fingerprints({"type": "int", "logicalType": "date"})
assert groups == {frozenset(right), frozenset({"avro of Python", "goavro"}), frozenset({"hamba"})}
assert read.startswith("org.apache.avro.message.MissingSchemaException")
groups, read = fingerprints({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
assert groups == {frozenset(right), frozenset({"avro of Python"}), frozenset({"goavro"}), frozenset({"hamba"})}
assert read.startswith("org.apache.avro.message.MissingSchemaException")
PYTHON
env/bin/python run.py
