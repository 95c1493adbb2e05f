"""Apicurio's serializers and deserializers for Java, with Kafka's own clients, beside the sink and the source."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from google.protobuf import text_format
from support import name, options, registries
from support.java_gateway import JavaProcess
from support.protobuf_messages import classes, compiled

from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing import download

pytestmark = pytest.mark.soak

AVRO = {
    "type": "record",
    "name": "Sample",
    "fields": [
        {"name": "count", "type": "long"},
        {"name": "mean", "type": ["null", "double"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["LOW", "HIGH"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "buckets", "type": {"type": "array", "items": "long"}},
    ],
}
AVRO_ROWS = [
    {"count": n, "mean": n / 2 if n else None, "kind": "HIGH", "tags": {"k": str(n)}, "buckets": [n, 300]}
    for n in range(2)
]
AVRO_VALUES = (
    "named_struct('count', id, 'mean', IF(id = 0, NULL, id / 2), 'kind', 'HIGH', 'tags', map('k', string(id)), "
    "'buckets', array(id, 300L))"
)
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Sample",
    "type": "object",
    "properties": {"count": {"type": "integer"}},
}
JSON_ROWS = [{"count": n} for n in range(2)]
# Google's jar has a class of this message, which is the second of the file here.
PROTO = """syntax = "proto3";
package google.api;
import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Distribution {
  message Range { double min = 1; double max = 2; }
  message Exemplar { double value = 1; google.protobuf.Timestamp timestamp = 2; }
  message BucketOptions {
    message Linear { int32 num_finite_buckets = 1; double width = 2; double offset = 3; }
    message Explicit { repeated double bounds = 1; }
    oneof options { Linear linear_buckets = 1; Explicit explicit_buckets = 3; }
  }
  int64 count = 1; double mean = 2; Range range = 4; BucketOptions bucket_options = 6;
  repeated int64 bucket_counts = 7; repeated Exemplar exemplars = 10;
}
"""
MESSAGE = "google.api.Distribution"
DISTRIBUTION = classes(compiled({"samples.proto": PROTO}, "samples.proto"))[MESSAGE]
MESSAGES = [
    text_format.Parse(
        f"""count: {n + 1} mean: {n + 0.5} range {{ min: -1 max: 300 }}
        bucket_options {{ explicit_buckets {{ bounds: {n} bounds: 2.5 }} }} bucket_counts: {n} bucket_counts: 300
        exemplars {{ value: 1.5 timestamp {{ seconds: 1767323045 nanos: 678901000 }} }}""",
        DISTRIBUTION(),
    )
    for n in range(2)
]
PROTOBUF_VALUES = """named_struct(
    'count', id + 1,
    'mean', id + 0.5D,
    'range', named_struct('min', -1D, 'max', 300D),
    'bucket_options', named_struct(
        'linear_buckets', CAST(NULL AS STRUCT<num_finite_buckets: INT, width: DOUBLE, offset: DOUBLE>),
        'explicit_buckets', named_struct('bounds', array(double(id), 2.5D))
    ),
    'bucket_counts', array(id, 300L),
    'exemplars', array(named_struct('value', 1.5D, 'timestamp', TIMESTAMP'2026-01-02T04:04:05.678901+01:00'))
)"""

SERDE = "io.apicurio.registry.serde"
PAGE = (Path(__file__).parents[2] / "docs/values.md").read_text()
OF_PROTOBUF = dict(re.findall(r"`(apicurio\.[\w.-]+)=(\w+)`", PAGE))
RETURNED = re.findall(r"`(apicurio\.[\w.-]+return-class)`", PAGE)
"""What Protobuf needs, as the page says."""


def at(registry):
    """The setting that names the registry, by its own API."""
    return {"apicurio.registry.url": registry.url.replace("ccompat/v7", "registry/v3")}


@pytest.fixture(scope="module")
def serdes():
    try:
        return registries.serdes()
    except RuntimeError as error:
        pytest.skip(f"Apicurio's serializers for Java cannot be downloaded: {error}")


@pytest.fixture
def topic(kafka):
    return kafka.create_topic(name("java"), partitions=1)


def printed(kafka, serdes, topic, deserializer, given):
    """What kafka-console-consumer prints of two values."""
    command = [
        java(), "-Xmx512m", "-cp", f"{download.jars('kafka-tools')}/*:{serdes}/*",
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", kafka.bootstrap_servers,
        "--topic", topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000",
        "--formatter-property", f"value.deserializer={SERDE}.{deserializer}",
    ]  # fmt: skip
    for key, value in given.items():
        command += ["--formatter-property", f"value.deserializer.{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


CASES = {
    "avro": ("avro.AvroKafka", "AVRO", AVRO, {"valueFormat": "avro"}, AVRO_VALUES),
    "jsonschema": (
        "jsonschema.JsonSchemaKafka", "JSON", JSON_SCHEMA, {"valueFormat": "json"}, "named_struct('count', id)"
    ),
    "protobuf": (
        "protobuf.ProtobufKafka", "PROTOBUF", PROTO, {"valueFormat": "protobuf", "valueMessage": MESSAGE},
        PROTOBUF_VALUES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_javas_console_consumer_prints_what_the_sink_writes(spark, kafka, apicurio, serdes, topic, kind):
    classes_of, registered, schema, more, values = CASES[kind]
    apicurio.register(f"{topic}-value", schema, registered)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "schema.registry.url": apicurio.url, "topic": topic}
    rows = spark.range(2).coalesce(1).selectExpr(f"{values} value")
    rows.write.format("groupkafka").options(**given | more).mode("append").save()
    given = at(apicurio)
    if kind == "protobuf":
        given |= OF_PROTOBUF | dict.fromkeys(RETURNED, "com.google.api.Distribution")
    found = printed(kafka, serdes, topic, f"{classes_of}Deserializer", given)
    if kind == "protobuf":
        assert [text_format.Parse(each, DISTRIBUTION()) for each in found.strip().split("\n\n")] == MESSAGES
    else:
        assert [json.loads(line) for line in found.splitlines()] == (AVRO_ROWS if kind == "avro" else JSON_ROWS)


@pytest.fixture(scope="module")
def in_java(serdes):
    process = JavaProcess(serdes)
    yield process
    process.stop()


def records_of_avro(jvm):
    schema = jvm.org.apache.avro.Schema.Parser().parse(json.dumps(AVRO))
    reader = jvm.org.apache.avro.generic.GenericDatumReader(schema)
    for row in AVRO_ROWS:
        text = json.dumps(row | {"mean": row["mean"] and {"double": row["mean"]}})
        yield reader.read(None, jvm.org.apache.avro.io.DecoderFactory.get().jsonDecoder(schema, text))


def documents(jvm):
    for row in JSON_ROWS:
        yield jvm.com.fasterxml.jackson.databind.ObjectMapper().readTree(json.dumps(row))


def messages(jvm):
    for each in MESSAGES:
        yield jvm.com.google.api.Distribution.parseFrom(each.SerializeToString())


def send(process, kafka, registry, topic, kind, made, more):
    """Write values by Java's producer, with the latest schema of the subject."""
    clients = process.kafka.clients.producer
    given = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "value.serializer": f"{SERDE}.{CASES[kind][0]}Serializer",
        "apicurio.registry.find-latest": "true",
    }
    producer = clients.KafkaProducer(process.java.util.HashMap(given | at(registry) | more))
    for each in made(process.gateway.jvm):
        producer.send(clients.ProducerRecord(topic, each)).get()
    producer.close()


def read(spark, kafka, registry, topic, **more):
    given = options(kafka, topic, **{"schema.registry.url": registry.url}, **more)
    return spark.read.format("groupkafka").options(**given).load().orderBy("offset").select("value").collect()


@pytest.mark.parametrize(
    ("kind", "made"), [("avro", records_of_avro), ("jsonschema", documents), ("protobuf", messages)]
)
def test_the_source_reads_what_javas_serializers_write(spark, kafka, apicurio, in_java, topic, kind, made):
    _, registered, schema, more, values = CASES[kind]
    apicurio.register(f"{topic}-value", schema, registered)
    send(in_java, kafka, apicurio, topic, kind, made, OF_PROTOBUF if kind == "protobuf" else {})
    if kind == "jsonschema":
        more = more | {"valueSchema": "count BIGINT"}
    expected = spark.range(2).coalesce(1).selectExpr(f"{values} value").collect()
    assert read(spark, kafka, apicurio, topic, **more) == expected


def test_a_value_that_has_the_name_of_its_message_instead_of_indexes_is_malformed(
    spark, kafka, apicurio, in_java, topic
):
    apicurio.register(f"{topic}-value", PROTO, "PROTOBUF")
    send(in_java, kafka, apicurio, topic, "protobuf", messages, {})
    given = {"valueFormat": "protobuf", "valueMessage": MESSAGE, "onMalformedValue": "null"}
    assert [row.value for row in read(spark, kafka, apicurio, topic, **given)] == [None, None]
