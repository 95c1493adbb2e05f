"""A real query, and brokers on hosts of their own whose links are cut, without the RST of a killed broker."""

import threading
import time

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from support import name

from faults.evidence import GROUPKAFKA, Observed, Row
from faults.hosts.brokers import HOSTS, Brokers
from faults.hosts.network import TESTS, Network
from faults.judge import judged
from faults.topics import records
from spark_kafka_group.testing import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

GOAL_S = 15
OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def network():
    why_not = Network.why_not()
    if why_not:
        pytest.skip(why_not)
    with Network(*HOSTS) as network:
        yield network


@pytest.fixture(scope="module")
def brokers(network, tmp_path_factory):
    with Brokers(network, tmp_path_factory.mktemp("brokers")) as brokers:
        yield brokers


@pytest.fixture
def admin(brokers):
    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers, request_timeout_ms=5_000)
    yield admin
    admin.close()


@pytest.fixture
def topic(brokers, admin):
    topic = name("topic")
    admin.create_topics([NewTopic(topic, 6, 3)])
    wait_until(lambda: len(brokers.says(HOSTS[0], topic) or ()) == 6, within=30)
    return topic


@pytest.fixture
def written(brokers, topic):
    """Sends a record to each partition ten times a second while the test runs; returns the acknowledged ones."""
    over = threading.Event()
    producer = KafkaProducer(
        bootstrap_servers=brokers.bootstrap_servers, request_timeout_ms=3_000, delivery_timeout_ms=300_000,
        max_block_ms=120_000, acks="all",
    )  # fmt: skip

    def write():
        number = 0
        while not over.wait(0.1):
            for partition in range(6):
                producer.send(topic, b"%d:%d" % (partition, number), partition=partition)
            number += 1

    thread = threading.Thread(target=write, daemon=True)
    thread.start()

    def end():
        over.set()
        thread.join(timeout=150)
        producer.flush(timeout=60)
        producer.close(timeout=10)

    yield end
    over.set()


class Rows:
    """The rows in the sink: of each batch its last delivery."""

    def __init__(self):
        self.batches = {}
        self.times = []

    def __call__(self, df, batch_id):
        rows = df.selectExpr("topic", "partition", "offset", "cast(value as string)").collect()
        self.batches[batch_id] = [Row(batch_id, *row) for row in rows]
        if rows:
            self.times.append(time.monotonic())

    def all(self):
        return [row for rows in self.batches.values() for row in rows]

    def first_after(self, moment, within):
        return wait_until(lambda: next((t for t in self.times if t > moment), None), within=within) - moment


@pytest.fixture
def query(spark, brokers, topic, tmp_path):
    rows = Rows()
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "kafka.group.id": name("group")}
    source = spark.readStream.format("groupkafka").options(**options, subscribe=topic, startingOffsets="earliest")
    stream = source.load().writeStream.foreachBatch(rows).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = stream.trigger(processingTime="500 milliseconds").start()
    query.rows, query.group = rows, options["kafka.group.id"]
    wait_until(lambda: len(rows.times) >= 3, within=120)
    yield query
    query.stop()


def judged_whole(brokers, topic, query):
    """Every record of the topic has arrived once."""
    log = records(brokers, {topic: 6})
    wait_until(lambda: len(query.rows.all()) >= len(log) or query.exception(), within=120)
    assert query.exception() is None
    assert judged(Observed(GROUPKAFKA, "overwrite", log=log, rows=query.rows.all())) == []


def moved(brokers, topic, cut):
    """Wait until other brokers lead and coordinate in place of the one that is cut off; returns the time."""
    alive = next(host for number, host in enumerate(HOSTS, start=1) if number != cut)
    wait_until(lambda: cut not in (brokers.says(alive, topic, OFFSETS) or {0: cut}).values(), within=60, every=0.1)
    return time.monotonic()


@pytest.mark.parametrize("what", ["coordinator", "leader"])
def test_rows_come_soon_after_kafka_has_failed_over(network, brokers, topic, written, query, what):
    leaders = wait_until(lambda: brokers.says(HOSTS[0], topic, OFFSETS), within=10)
    coordinator = leaders[OFFSETS, 0]
    cut = coordinator if what == "coordinator" else next(n for n in leaders.values() if n != coordinator)
    network.cut(HOSTS[cut - 1])
    began = time.monotonic()
    try:
        failed_over = moved(brokers, topic, cut)
        gap = query.rows.first_after(failed_over, within=120)
        print(f"{what}: failed over after {failed_over - began:.1f} s, first rows {gap:.1f} s later")
        time.sleep(5)  # and more rows, with the broker still away
        written()
    finally:
        network.mend(HOSTS[cut - 1])
    wait_until(lambda: brokers.says(HOSTS[cut - 1], topic) == brokers.says(HOSTS[cut % 3], topic), within=60)
    judged_whole(brokers, topic, query)
    assert gap <= GOAL_S


def test_a_driver_that_was_cut_off_from_all_brokers_is_the_same_member_afterwards(
    network, brokers, topic, written, query, admin
):
    (before,) = admin.describe_groups([query.group])[query.group]["members"]
    network.cut(TESTS)
    time.sleep(38)  # of a session of 45 s, of which up to 3 s were over
    network.mend(TESTS)
    back = time.monotonic()
    gap = query.rows.first_after(back, within=120)
    print(f"all brokers: first rows {gap:.1f} s after they were back")
    written()
    judged_whole(brokers, topic, query)
    described = wait_until(lambda: admin.describe_groups([query.group])[query.group]["members"], within=30)
    assert [member["member_id"] for member in described] == [before["member_id"]]
    assert gap <= GOAL_S
