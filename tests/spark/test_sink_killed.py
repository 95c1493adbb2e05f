"""A query that is killed with its JVM at any time, again and again, publishes each row once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from support import name, wait_for_markers

from spark_kafka_group.testing import wait_until

PROGRAM = Path(__file__).with_name("exactly_once_program.py")
PROCESSOR = Path(__file__).with_name("exactly_once_processor.py")
NUMBERS, KILLS = 7_000, int(os.environ.get("KILLS", "8"))


def ends(kafka, topic, isolation):
    wait_for_markers(kafka)
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation)
    try:
        return consumer.end_offsets([TopicPartition(topic, number) for number in (0, 1)])
    finally:
        consumer.close()


def published(kafka, topic):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed",
        auto_offset_reset="earliest", consumer_timeout_ms=5_000,
    )  # fmt: skip
    try:
        return Counter(record.value.decode() for record in consumer)
    finally:
        consumer.close()


def wait_until_it_writes(kafka, topic, query):
    before = ends(kafka, topic, "read_uncommitted")
    wait_until(lambda: query.poll() is not None or ends(kafka, topic, "read_uncommitted") != before, within=180)


def run_and_kill(kafka, output, program, tmp_path):
    """Kill a program again and again while it writes, and have it come to its end then; returns what starts it."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}

    def start():
        with (tmp_path / "err").open("ab") as err:
            return subprocess.Popen(
                [sys.executable, *program],
                env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=err,
            )  # fmt: skip

    for _ in range(KILLS):
        query = start()
        wait_until_it_writes(kafka, output, query)
        assert query.poll() is None, (tmp_path / "err").read_text()[-3000:]
        time.sleep(random.uniform(0, 3))  # anywhere in a batch
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()
    assert start().wait(600) == 0, (tmp_path / "err").read_text()[-3000:]
    return start


@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_a_query_that_is_killed_again_and_again_publishes_each_row_once(kafka, tmp_path):
    source = kafka.create_topic(name("input"), partitions=2)
    output = kafka.create_topic(name("output"), partitions=2)
    for _ in range(2):  # the second time they are known
        kafka.produce(source, [b"%d" % number for number in range(NUMBERS)])
    program = [str(PROGRAM), kafka.bootstrap_servers, source, output, name("w"), str(tmp_path / "checkpoint")]
    run_and_kill(kafka, output, program, tmp_path)
    assert published(kafka, output) == Counter(str(number) for number in range(NUMBERS))
    assert ends(kafka, output, "read_committed") == ends(kafka, output, "read_uncommitted")


@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_a_processor_that_is_killed_again_and_again_publishes_what_it_returns_retries_and_gives_up_once(
    kafka, tmp_path
):
    source, output = (kafka.create_topic(name(kind), partitions=2) for kind in ("input", "output"))
    retry, dead = (kafka.create_topic(f"{source}-{kind}", partitions=2) for kind in ("retry-1", "dlt"))
    kafka.produce(source, [b"%d" % number for number in range(NUMBERS)])
    program = [str(PROCESSOR), kafka.bootstrap_servers, name("g"), source, output, str(tmp_path / "checkpoint")]
    start = run_and_kill(kafka, output, program, tmp_path)
    assert start().wait(600) == 0, "what was not due before"
    wanted = [Counter(str(n) for n in range(NUMBERS) if n % 10 in last) for last in ({0, 1, *range(3, 10)}, {1}, {2})]
    assert [published(kafka, topic) for topic in (output, retry, dead)] == wanted
    for topic in (output, retry, dead):
        assert ends(kafka, topic, "read_committed") == ends(kafka, topic, "read_uncommitted")
