#!/usr/bin/env bash
# Kafka 4.4.0 (Java 17), kafka-python 3.0.12; Ivy of pyspark 4.3.0 downloads Kafka. Two brokers. A transaction has a record in a
# partition whose only replica dies; then its producer commits, and the replica comes back (KAFKA-20734).
# Guess: the coordinator writes the marker once the partition has its leader again, so the record becomes readable.
# Instead the commit succeeds at once, and no marker is ever written: readers of committed records stay before the record, also
# after the transaction's timeout of 20 s.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(cat "$folder"/pid? 2> /dev/null) 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile pyspark==4.3.0 kafka-python==3.0.12
java -jar env/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -dependency org.apache.kafka kafka_2.13 4.4.0 -confs default \
    -cache "$folder/ivy" -retrieve "$folder/lib/[artifact]-[revision].[ext]" > ivy.log
cat > run.py <<'PYTHON'
import os, signal, socket, subprocess, time
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.structs import TopicPartition

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
controller, *ports = [s.getsockname()[1] for s in sockets]
for s in sockets:
    s.close()
java = ["java", "-Xmx400m", "-cp", "lib/*"]
for node, port in enumerate(ports, 1):
    roles, more = ("broker,controller", f",CONTROLLER://127.0.0.1:{controller}") if node == 1 else ("broker", "")
    open(f"node{node}", "w").write(f"""
process.roles={roles}
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{port}{more}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={os.getcwd()}/data{node}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
""")
    format = [*java, "kafka.tools.StorageTool", "format", "-t", "kQmVvx4wSXqXQEZC0oCUqQ", "-c", f"node{node}"]
    subprocess.run(format, check=True, capture_output=True)


def start(node):
    process = subprocess.Popen([*java, "kafka.Kafka", f"node{node}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    open(f"pid{node}", "w").write(str(process.pid))
    return process


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


servers, tp = f"127.0.0.1:{ports[0]}", TopicPartition("t", 0)
start(1)
admin = wait(lambda: KafkaAdminClient(bootstrap_servers=servers))
producer = wait(lambda: KafkaProducer(bootstrap_servers=servers, transactional_id="writer", transaction_timeout_ms=20_000))
wait(lambda: producer.init_transactions() or True)  # the coordinator is node 1, which is alone
second = start(2)
topic = NewTopic("t", num_partitions=-1, replication_factor=-1, replica_assignments={0: [2]})
wait(lambda: admin.create_topics([topic]) or True)  # refused while node 2 is fenced
leader = lambda: admin.describe_topics(["t"])[0]["partitions"][0]["leader_id"]
assert wait(lambda: leader() == 2)
producer.begin_transaction()
producer.send("t", b"a row", partition=0).get(30)
second.send_signal(signal.SIGKILL)
second.wait()
assert wait(lambda: leader() == -1)
began = time.monotonic()
producer.commit_transaction()
print(f"commit_transaction() returned after {time.monotonic() - began:.1f} s, while t-0 had no leader")
start(2)
assert wait(lambda: leader() == 2)
end = lambda level: KafkaConsumer(bootstrap_servers=servers, isolation_level=level).end_offsets([tp])[tp]
published = wait(lambda: end("read_committed") > 0, 40)
print("ends 40 s after its leader is back:", "read_committed", end("read_committed"), "read_uncommitted", end("read_uncommitted"))
raise SystemExit(1 if published else 0)
PYTHON
env/bin/python -W ignore run.py
echo "as described, with Kafka 4.4.0"
