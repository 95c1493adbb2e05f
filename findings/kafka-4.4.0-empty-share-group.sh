#!/usr/bin/env bash
# Kafka 4.4.0 (Java 17) with its ConsoleShareConsumer, kafka-python 3.0.12; Ivy of pyspark 4.3.0 downloads Kafka. A share consumer
# reads a topic and ends, so its group is empty. Then a consumer joins the same group id, and a program commits an offset for it.
# Guess: the id is free. An empty group has no members and no offsets; an empty group of consumers is taken over by either protocol.
# Instead the group keeps its type: JoinGroup is answered with INCONSISTENT_GROUP_PROTOCOL, the error of members without a common
# strategy, though there is no member; OffsetCommit with GROUP_ID_NOT_FOUND, though ListGroups shows the group; DescribeGroups
# says Dead, and OffsetFetch says nothing is committed, without an error. Only ListGroups tells the type.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(cat "$folder"/pid 2> /dev/null) 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile pyspark==4.3.0 kafka-python==3.0.12
for artifact in kafka_2.13 kafka-tools; do
    java -jar env/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -dependency org.apache.kafka $artifact 4.4.0 -confs default \
        -cache "$folder/ivy" -retrieve "$folder/lib/[artifact]-[revision].[ext]" > ivy.log
done
cat > run.py <<'PYTHON'
import os, socket, subprocess, time
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
controller, port = [s.getsockname()[1] for s in sockets]
for s in sockets:
    s.close()
java, servers = ["java", "-Xmx400m", "-cp", "lib/*"], f"127.0.0.1:{port}"
open("node", "w").write(f"""
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{servers},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={os.getcwd()}/data
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
""")
format = [*java, "kafka.tools.StorageTool", "format", "-t", "kQmVvx4wSXqXQEZC0oCUqQ", "-c", "node"]
subprocess.run(format, check=True, capture_output=True)
process = subprocess.Popen([*java, "kafka.Kafka", "node"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open("pid", "w").write(str(process.pid))


def wait(what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := what():
                return found
        except Exception:
            pass
        time.sleep(0.5)
    return None


def said(call):
    try:
        return call()
    except KafkaError as error:
        return type(error).__name__


admin = wait(lambda: KafkaAdminClient(bootstrap_servers=servers))
admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])
share = [*java, "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", servers]
subprocess.run([*share, "--topic", "t", "--group", "g", "--timeout-ms", "3000"], capture_output=True)
listed = wait(lambda: [g for g in admin.list_groups() if "g" in str(g) and "Empty" in str(g)])
print("ListGroups:    ", listed)
consumer = KafkaConsumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
joined = said(lambda: consumer.poll(timeout_ms=10_000))
print("JoinGroup:     ", joined)
tp = TopicPartition("t", 0)
alone = KafkaConsumer(bootstrap_servers=servers, group_id="g", enable_auto_commit=False)
alone.assign([tp])
committed = said(lambda: alone.commit({tp: OffsetAndMetadata(0, "", -1)}))
print("OffsetCommit:  ", committed)
fetched = said(lambda: alone.committed(tp))
print("OffsetFetch:   ", fetched)
described = said(lambda: str(admin.describe_groups(["g"])))
print("DescribeGroups:", described)
seen = ("share" in str(listed), joined, committed, fetched)
print(seen, flush=True)
os._exit(seen != (True, "InconsistentGroupProtocolError", "GroupIdNotFoundError", None))
PYTHON
env/bin/python run.py
