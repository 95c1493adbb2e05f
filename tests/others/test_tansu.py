"""Tansu, a broker in Rust: what works on it, and what its answers would have broken."""

import threading
import time

import pytest
from other_brokers import Tansu
from support.batches import client_options
from support.exactly_once_runs import Run, transaction_options
from support.triggers import batch_values, send

from spark_kafka_group.__main__ import main
from spark_kafka_group.errors import BrokerError, GroupKafkaError
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.transactions.kept_clients import close_all

pytestmark = pytest.mark.soak
QUICK = {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "1500"}
"""Its JoinGroup is answered after half a session."""


@pytest.fixture(scope="module")
def tansu():
    with Tansu() as broker:
        yield broker


def test_a_query_that_died_before_its_commit_reads_nothing_twice_and_misses_no_end(tansu, stream_of, caplog):
    topic = tansu.create_topic("orders", 2)
    send(tansu, topic, 0, range(50))
    send(tansu, topic, 1, range(50, 100))
    stream = stream_of(tansu, topic, **QUICK)
    assert batch_values(stream.settings) == list(range(100))
    assert stream.trigger() == list(range(100))
    send(tansu, topic, 0, range(100, 110))
    assert stream.trigger() == list(range(100, 110))
    stream.restart()  # Spark has logged the batch, and the group has no commit of it
    send(tansu, topic, 1, range(110, 120))
    assert stream.trigger() == list(range(110, 120))
    assert stream.trigger() is None
    assert "these brokers do not keep the metadata of commits" in caplog.text
    assert "ends are taken from Fetch" in caplog.text
    with GroupAdmin(client_options(tansu.bootstrap_servers)) as admin:
        assert sum(found.offset for found in admin.committed("billing").values()) == 120


def test_commands_show_and_move_the_group(tansu, stream_of, capsys):
    topic = tansu.create_topic("bills", 1)
    send(tansu, topic, 0, range(10))
    stream = stream_of(tansu, topic, group="bills", **QUICK)
    stream.trigger()
    stream.trigger()
    where = ["--bootstrap-server", tansu.bootstrap_servers]
    assert main(["describe", *where, "--group", "bills"]) == 0
    assert main(["describe", *where]) == 0
    assert "group bills: Stable" in capsys.readouterr().out
    stream.reader.stop()
    assert main(["reset", *where, "--group", "bills", "--to-offset", "3", "--topic", topic, "--execute"]) == 0
    with GroupAdmin(client_options(tansu.bootstrap_servers)) as admin:
        assert admin.committed("bills")[TopicPartition(topic, 0)].offset == 3


def test_two_queries_share_a_group(tansu, stream_of):
    topic = tansu.create_topic("shared", 4)
    for partition in range(4):
        send(tansu, topic, partition, range(10 * partition, 10 * partition + 10))
    streams = [stream_of(tansu, topic, group="shared", **QUICK) for _ in range(2)]
    found = [[], []]

    def run(n):
        for _ in range(4):
            found[n] += streams[n].trigger() or []

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found[0] + found[1]) == set(range(40))


def test_look_ups_by_time_are_not_believed(tansu, stream_of):
    topic = tansu.create_topic("timed")
    send(tansu, topic, 0, range(20))
    later_ms = int(time.time() * 1000) + 60_000  # than all records: there is no such offset
    stream = stream_of(tansu, topic, group="timed", startingTimestamp=later_ms, **QUICK)
    del stream.settings["startingOffsets"]
    with pytest.raises(GroupKafkaError, match="timed-0: these brokers answer that offset 0 is .* no timestamp"):
        batch_values(stream.settings)


def test_exactly_once_ends_with_the_name_of_what_is_lacking(tansu):
    run = Run(transaction_options(tansu.bootstrap_servers, "copy", limit_ms=5000), tansu.create_topic("output", 2))
    with pytest.raises(BrokerError, match="which producer it takes.*KIP-360"):
        run.batch(0)
    close_all()


def test_tansu_lets_two_living_processes_with_one_id_through(tansu, stream_of):
    topic = tansu.create_topic("twice")
    send(tansu, topic, 0, range(5))
    one = QUICK | {"kafka.group.instance.id": "one"}
    streams = [stream_of(tansu, topic, group="twice", **one) for _ in range(2)]
    assert [stream.trigger() for stream in streams] == [[0, 1, 2, 3, 4]] * 2
    send(tansu, topic, 0, [5])
    assert [stream.trigger() for stream in streams] == [[5]] * 2
