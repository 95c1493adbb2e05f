"""`make demo`: a broker, a million events, a streaming query into parquet, and the group's state.

Starts a Kafka broker of its own, sends order events with keys and headers into a topic of six partitions, and meanwhile
streams them to parquet with jobs/stream_to_parquet.py through spark-submit. When all have arrived it stops the query
and compares the sent events with the files.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kafka import KafkaProducer
from pyarrow import parquet

from spark_kafka_group.testing import KafkaCluster

ROOT = Path(__file__).resolve().parent.parent
LOGGING = ROOT / "conf/log4j2.properties"
TOPIC, GROUP, PARTITIONS = "orders", "billing", 6
ITEMS = ["espresso", "flat white", "cold brew", "croissant", "cinnamon roll", "beans 250 g", "beans 1 kg", "mug"]


def event(number: int, rng: random.Random) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    """Key, value and headers of one order."""
    customer = f"customer-{rng.randrange(20_000):05d}"
    order = {
        "order_id": number,
        "customer": customer,
        "item": rng.choice(ITEMS),
        "quantity": rng.randrange(1, 5),
        "price": round(rng.uniform(2, 40), 2),
        "currency": "EUR",
        "shop": rng.randrange(1, 120),
    }
    headers = [("event", b"order-placed"), ("trace", b"%016x" % rng.getrandbits(64))]
    return customer.encode(), json.dumps(order).encode(), headers


def produce(bootstrap_servers: str, first: int, last: int) -> None:
    """Send the orders with numbers from `first` up to `last`."""
    rng = random.Random(first)
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=50, batch_size=131_072, acks="all")
    for number in range(first, last):
        key, value, headers = event(number, rng)
        producer.send(TOPIC, key=key, value=value, headers=headers)
    producer.flush()
    producer.close()


def spark_submit(bootstrap_servers: str, directory: Path) -> subprocess.Popen[bytes]:
    """The streaming job, as a user would submit it."""
    command = [
        Path(sys.executable).with_name("spark-submit"),
        "--master", "local[2]",
        "--properties-file", ROOT / "conf/spark-defaults.conf",
        "--conf", f"spark.driver.extraJavaOptions=-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        ROOT / "jobs/stream_to_parquet.py",
        "--bootstrap-servers", bootstrap_servers,
        "--group", GROUP,
        "--topics", TOPIC,
        "--output", directory / "parquet",
        "--checkpoint", directory / "checkpoint",
        "--trigger", "2 seconds",
    ]  # fmt: skip
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen([str(part) for part in command], env=environment)


def wait_for_commit(cluster: KafkaCluster, records: int, job: subprocess.Popen[bytes]) -> None:
    """Wait until the group has committed that many records."""
    while sum(offset for offset, _ in cluster.committed(GROUP).values()) < records:
        if job.poll() is not None:
            raise SystemExit(f"the streaming job ended by itself, with {job.returncode}")
        time.sleep(0.5)


def compare(directory: Path, records: int) -> bool:
    """Print and return whether every order is in the files once."""
    values = parquet.read_table(directory / "parquet", columns=["value"])["value"]
    distinct = len({json.loads(value.as_py())["order_id"] for value in values})
    complete = records == len(values) == distinct
    print(f"rows produced       {records:>10,}")
    print(f"rows in parquet     {len(values):>10,}")
    print(f"distinct orders     {distinct:>10,}   {'none lost, none twice' if complete else 'WRONG'}")
    return complete


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory(prefix="groupkafka-demo-") as temporary, KafkaCluster() as cluster:
        directory = Path(temporary)
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        servers = cluster.bootstrap_servers
        print(
            f"broker at {servers}; producing {records:,} orders into {PARTITIONS} partitions of {TOPIC!r}", flush=True
        )
        bounds = (0, records // 2, records)
        producers = [
            multiprocessing.Process(target=produce, args=(servers, *pair)) for pair in itertools.pairwise(bounds)
        ]
        for producer in producers:
            producer.start()
        job = spark_submit(servers, directory)
        try:
            for producer in producers:
                producer.join()
                if producer.exitcode:
                    raise SystemExit("a producer failed")
            print(f"all {records:,} orders produced", flush=True)
            wait_for_commit(cluster, records, job)
            described = cluster.consumer_groups("--describe", "--group", GROUP)
        finally:
            job.send_signal(signal.SIGINT)  # as Ctrl-C would
            job.wait(60)
        print(f"\n$ kafka-consumer-groups --bootstrap-server {servers} --describe --group {GROUP}\n{described}")
        lag = sum(row.lag for row in cluster.describe_group(GROUP))
        complete = compare(directory, records)
        print(f"lag                 {lag:>10,}")
        if lag or not complete:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
