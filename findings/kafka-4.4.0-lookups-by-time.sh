#!/usr/bin/env bash
# Kafka 4.4.0 (Java 17), kafka-python 3.0.12; Ivy of pyspark 4.3.0 downloads Kafka. Three records are written with gzip, a second
# apart; the one in the middle has 100,000 bytes. Then the topic's max.decompressed.message.bytes is set to 50,000.
# Guess: the setting is for producers, as max.message.bytes is: what is stored is read, and found by its time, as before.
# Instead the broker answers INVALID_RECORD to a lookup of times between the first and the second record, though it sends all
# three records to a consumer. kafka-python repeats the lookup until its time is over, and then names no error.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(cat "$folder/pid" 2> /dev/null) 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile pyspark==4.3.0 kafka-python==3.0.12
java -jar env/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -dependency org.apache.kafka kafka_2.13 4.4.0 -confs default \
    -cache "$folder/ivy" -retrieve "$folder/lib/[artifact]-[revision].[ext]" > ivy.log
cat > run.py <<'PYTHON'
import logging, os, socket, subprocess, time
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, NewTopic
from kafka.structs import TopicPartition

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
port, controller = [s.getsockname()[1] for s in sockets]
for s in sockets:
    s.close()
open("server.properties", "w").write(f"""
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={os.getcwd()}/data
offsets.topic.replication.factor=1
""")
java = ["java", "-Xmx400m", "-cp", "lib/*"]
format = [*java, "kafka.tools.StorageTool", "format", "-t", "kQmVvx4wSXqXQEZC0oCUqQ", "-c", "server.properties"]
subprocess.run(format, check=True, capture_output=True)
process = subprocess.Popen([*java, "kafka.Kafka", "server.properties"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open("pid", "w").write(str(process.pid))
servers, tp = f"127.0.0.1:{port}", TopicPartition("t", 0)


def wait(what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := what():
                return found
        except Exception:
            pass
        time.sleep(0.5)
    raise SystemExit("nothing happened in time")


admin = wait(lambda: KafkaAdminClient(bootstrap_servers=servers))
admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])
producer = KafkaProducer(bootstrap_servers=servers, compression_type="gzip", acks="all")
start_ms = 1_700_000_000_000
for second, value in enumerate([b"a", b"x" * 100_000, b"c"]):
    producer.send("t", value, timestamp_ms=start_ms + 1000 * second).get(30)
consumer = KafkaConsumer(bootstrap_servers=servers)


def offset_at(ms):
    try:
        return consumer.offsets_for_times({tp: start_ms + ms}, timeout_ms=3000)[tp].offset
    except Exception as error:
        return f"{type(error).__name__}: {error}"


lines = []
logging.getLogger("kafka.consumer.fetcher").addFilter(lambda record: bool(lines.append(record.getMessage())))
before = {ms: offset_at(ms) for ms in (0, 1, 1000, 1001)}
admin.alter_configs([ConfigResource("TOPIC", "t", configs={"max.decompressed.message.bytes": "50000"})])
wait(lambda: isinstance(offset_at(1), str))
after = {ms: offset_at(ms) for ms in (0, 1, 1000, 1001)}
consumer.assign([tp])
consumer.seek(tp, 0)
read = wait(lambda: [len(record.value) for records in consumer.poll(5000).values() for record in records])
print("offsets by ms after the first record, before:", before)
print("and after the setting was lowered:", after)
print("the broker's answer, in kafka-python's log:", lines[-1].rpartition(" ")[2])
print("lengths of records that were read:", read)
refused = "InvalidRecordError" in lines[-1] and "KafkaTimeoutError" in after[1] and "KafkaTimeoutError" in after[1000]
raise SystemExit(0 if refused and (after[0], after[1001], len(read)) == (0, 2, 3) else 1)
PYTHON
env/bin/python -W ignore run.py
echo "as described, with Kafka 4.4.0 and kafka-python 3.0.12"
