#!/usr/bin/env bash
# Kafka 4.4.0 (Java 17), kafka-python 3.0.12; Ivy of pyspark 4.3.0 downloads Kafka. A topic takes no record above 2,000 bytes. A
# producer with default settings (idempotent) sends a small record, one of 5,000 bytes, and ten small ones.
# Guess: the large record fails, and the others are written, as with enable_idempotence=False and as with Java's producer.
# Instead all ten records after it fail, too, whenever they are sent, and flush() raises nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(cat "$folder/pid" 2> /dev/null) 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile pyspark==4.3.0 kafka-python==3.0.12
java -jar env/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -dependency org.apache.kafka kafka_2.13 4.4.0 -confs default \
    -cache "$folder/ivy" -retrieve "$folder/lib/[artifact]-[revision].[ext]" > ivy.log
cat > run.py <<'PYTHON'
import os, socket, subprocess, time
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

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
servers = f"127.0.0.1:{port}"


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
admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1, topic_configs={"max.message.bytes": "2000"})])


def written(**settings):
    producer = KafkaProducer(bootstrap_servers=servers, **settings)
    producer.send("t", b"first").get(30)
    large = producer.send("t", b"x" * 5000)
    producer.flush(30)
    later = []
    for n in range(10):
        try:
            later.append(producer.send("t", b"%d" % n))
            producer.flush(30)
        except Exception as error:
            later.append(error)
    def fate(one):
        if isinstance(one, Exception):
            return type(one).__name__
        return "written" if one.succeeded() else type(one.exception).__name__
    return fate(large), sorted({fate(one) for one in later})


default, without = written(), written(enable_idempotence=False)
print("default: the large record", default[0], "- the ten after it", default[1])
print("enable_idempotence=False: the large record", without[0], "- the ten after it", without[1])
raise SystemExit(0 if "written" not in default[1] and without[1] == ["written"] else 1)
PYTHON
env/bin/python -W ignore run.py
echo "as described, with Kafka 4.4.0 and kafka-python 3.0.12"
