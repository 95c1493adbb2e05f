#!/usr/bin/env bash
# confluent-kafka 2.16.1 (PyPI) with protobuf 7.36.2, its registry in memory; a topic with values of two messages of one file.
# Guess: the serializer writes which message of the file a value is (message indexes), so that a deserializer made for an Order
# raises an error for a Customer, at the latest if it is given the registry and reads the writer's schema.
# Instead it reads the indexes and drops them. A Customer's number and city become an Order's id and note, without an error, and
# a message whose field numbers differ becomes an empty Order.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q --no-compile 'confluent-kafka[protobuf,schemaregistry]==2.16.1' protobuf==7.36.2
cat > "$folder/program.py" <<'PYTHON'
import confluent_kafka
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
INT64, STRING, OPTIONAL = 3, 9, 1
for message, fields in {
    "Order": [("id", 1, INT64), ("note", 2, STRING)],
    "Customer": [("number", 1, INT64), ("city", 2, STRING)],
    "Closed": [("reason", 7, STRING)],
}.items():
    added = file.message_type.add(name=message)
    for field, number, kind in fields:
        added.field.add(name=field, number=number, type=kind, label=OPTIONAL)
pool = descriptor_pool.Default()
pool.AddSerializedFile(file.SerializeToString())
Order, Customer, Closed = (message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{m.name}")) for m in file.message_type)

registry = SchemaRegistryClient.new_client({"url": "mock://"})
context = SerializationContext("events", MessageField.VALUE, [])


def read(message):
    value = ProtobufSerializer(type(message), registry)(message, context)
    found = [reader(value, context) for reader in (ProtobufDeserializer(Order), ProtobufDeserializer(Order, None, registry))]
    print(f"{type(message).__name__} {str(message).split()}, indexes {value[5:7].hex()}, read as Order {str(found[0]).split()}")
    assert found[0] == found[1]
    return found[0]


print("confluent-kafka", confluent_kafka.__version__)
order = Order(id=7, note="gift")
assert read(order) == order
assert read(Customer(number=9, city="Bonn")) == Order(id=9, note="Bonn")
assert not read(Closed(reason="fraud")).ListFields()
PYTHON
"$folder/env/bin/python" "$folder/program.py"
