#!/usr/bin/env bash
# confluent-kafka 2.16.1 (PyPI), its Avro serializer and deserializer with the schema's GUID in a header, and its registry in memory.
# Guess: a value that is read, and written again with the headers that it came with, is read by the schema that it was written with
# last: Java's and .NET's deserializers take the last header of the name. And what the serializer writes, the deserializer reads.
# Instead the deserializer takes the first header: fields change places without an error. And it refuses a value of fewer than 6
# bytes, as it counts the five bytes of a frame that the value does not have.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q --no-compile 'confluent-kafka[avro,schemaregistry]==2.16.1'
cat > "$folder/program.py" <<'PYTHON'
import json

import confluent_kafka
from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

registry = SchemaRegistryClient.new_client({"url": "mock://"})
read = AvroDeserializer(registry, conf={"schema.id.deserializer": dual_schema_id_deserializer})


def written(row, topic, headers, *fields):
    schema = {"type": "record", "name": "Place", "fields": [{"name": field, "type": "string"} for field in fields]}
    write = AvroSerializer(registry, json.dumps(schema), conf={"schema.id.serializer": header_schema_id_serializer})
    return write(row, SerializationContext(topic, MessageField.VALUE, headers))


print("confluent-kafka", confluent_kafka.__version__)
headers = []
context = SerializationContext("any", MessageField.VALUE, headers)
row = {"city": "Bonn", "street": "Markt"}
assert read(written(row, "places", headers, "city", "street"), context) == row
again = read(written(row, "copies", headers, "street", "city"), context)
print("written again", row, "with", len(headers), "headers; read", again)
assert again == {"city": "Markt", "street": "Bonn"}
headers.clear()
value = written({"city": "Ulm"}, "towns", headers, "city")
try:
    print("read", read(value, context))
    raise SystemExit("a short value was read")
except SerializationError as error:
    print(len(value), "bytes:", error)
PYTHON
"$folder/env/bin/python" "$folder/program.py"
