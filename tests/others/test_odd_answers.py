"""Answers that brokers which are not Apache's were seen to give, by kfake; the same on tansu itself: test_tansu.py."""

import threading

import pytest
from support import Record, produce
from support.batches import client_options
from support.exactly_once_runs import Run, transaction_options
from support.triggers import FIRST, batch_values, send

from spark_kafka_group.__main__ import main
from spark_kafka_group.errors import BrokerError, FencedError, GroupKafkaError
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import LogClient
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.topic_admin import TopicAdmin
from spark_kafka_group.wire.transactions.kept_clients import close_all


def killed(stream):
    """The query dies after Spark has logged its batch, and before the group has its commit."""
    stream.restart()


def test_without_notes_a_query_that_died_before_its_commit_reads_nothing_twice(kfake_with, stream_of, caplog):
    kfake = kfake_with(answers=["commits-without-metadata"])
    topic = kfake.create_topic("orders")
    send(kafka=kfake, topic=topic, partition=0, values=range(5))
    stream = stream_of(kfake, topic)
    assert stream.trigger() == [0, 1, 2, 3, 4]
    send(kfake, topic, 0, range(5, 10))
    assert stream.trigger() == [5, 6, 7, 8, 9]
    assert caplog.text.count("these brokers do not keep the metadata of commits") == 1
    killed(stream)
    caplog.clear()
    send(kfake, topic, 0, [10])
    assert stream.trigger() == [10]
    assert caplog.text.count("these brokers do not keep the metadata of commits") == 1
    assert "going on from the checkpoint" in caplog.text
    assert stream.trigger() is None
    assert _committed(kfake, "billing") == {TopicPartition(topic, 0): 11}


def test_without_notes_a_partition_comes_back_at_the_offset_of_the_member_that_had_it(kfake_with, stream_of):
    kfake = kfake_with(answers=["commits-without-metadata"])
    topic = kfake.create_topic("orders", 2)
    for partition in range(2):
        send(kfake, topic, partition, range(5))
    streams = [stream_of(kfake, topic, **{"kafka.heartbeat.interval.ms": "200"}) for _ in range(2)]
    found, ending = ([], []), (threading.Event(), threading.Event())

    def run(n):
        while not ending[n].is_set():
            found[n].extend(streams[n].trigger() or [])

    def owned(n):
        driver = streams[n].reader._driver
        session = driver and driver._session
        generation = session and session.member._generation
        return sorted(tp.partition for tp in generation.assignment) if generation else []

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    try:
        threads[0].start()
        wait_until(lambda: len(found[0]) == 10, within=30)
        threads[1].start()
        wait_until(lambda: [len(owned(n)) for n in range(2)] == [1, 1], within=30)
        (moved,) = owned(1)
        send(kfake, topic, moved, range(5, 10))
        wait_until(lambda: len(found[1]) == 5, within=30)
        wait_until(lambda: _committed(kfake, "billing")[TopicPartition(topic, moved)] == 10, within=30)
        ending[1].set()
        threads[1].join()
        streams[1].reader.stop()
        wait_until(lambda: len(owned(0)) == 2, within=30)
        send(kfake, topic, moved, [10])
        wait_until(lambda: 10 in found[0], within=30)
    finally:
        for event, thread in zip(ending, threads, strict=True):
            event.set()
            if thread.ident is not None:
                thread.join()
    assert found == ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 10], [5, 6, 7, 8, 9])


@pytest.mark.parametrize("assigned", [False, True], ids=["subscribe", "assign"])
def test_with_notes_an_offset_that_another_program_has_set_counts(kfake_with, stream_of, caplog, assigned):
    kfake = kfake_with()
    topic = kfake.create_topic("orders")
    send(kfake, topic, 0, range(5))
    stream = stream_of(kfake, topic, **({"assign": f'{{"{topic}":[0]}}'} if assigned else {}))
    assert stream.trigger() == [0, 1, 2, 3, 4]
    assert stream.trigger() is None
    stream.reader.stop()
    with GroupAdmin(client_options(kfake.bootstrap_servers)) as admin:
        admin.commit("billing", {TopicPartition(topic, 0): 2})
    stream.restart()
    assert stream.trigger() == [2, 3, 4]
    assert stream.trigger() is None
    assert "do not keep the metadata" not in caplog.text


def test_an_end_that_is_too_low_is_taken_from_fetch(kfake_with, stream_of, caplog, capsys):
    kfake = kfake_with(answers=["ends-at-last-batch"])
    topic = kfake.create_topic("orders", 2)
    send(kfake, topic, 0, range(10))
    send(kfake, topic, 1, range(10, 100))
    stream = stream_of(kfake, topic)
    assert batch_values(stream.settings) == list(range(100))
    assert caplog.text.count("ends are taken from Fetch") == 1
    assert stream.available_now() == [list(range(100))]
    stream.restart()
    send(kfake, topic, 0, range(100, 110))
    assert stream.available_now() == [list(range(100, 110))]
    assert main(["describe", "--bootstrap-server", kfake.bootstrap_servers, "--group", "billing"]) == 0
    assert "orders  0          20              20              0" in capsys.readouterr().out


def test_an_end_beyond_records_that_come_meanwhile_is_believed(kfake_with, stream_of, caplog):
    kfake = kfake_with()
    topic = kfake.create_topic("orders")
    send(kfake, topic, 0, range(10))
    assert batch_values(stream_of(kfake, topic).settings) == list(range(10))
    assert "ends are taken from Fetch" not in caplog.text


def test_an_end_that_is_too_low_is_noticed_later_where_records_come_meanwhile(kfake_with):
    kfake = kfake_with(answers=["ends-at-last-batch"])
    topic = kfake.create_topic("orders")
    send(kfake, topic, 0, range(10))
    client = LogClient(client_options(kfake.bootstrap_servers))
    try:
        client.partitions(Subscription(topics=frozenset({topic})))
        fetched, tp = client._fetched_ends._fetched, TopicPartition(topic, 0)

        def fetched_before_more(*asked):
            found = fetched(*asked)
            send(kfake, topic, 0, range(10))
            return found

        client._fetched_ends._fetched = fetched_before_more
        assert client.end_offsets({tp}) == {tp: 10}
        client._fetched_ends._fetched = fetched
        assert [client.end_offsets({tp}) for _ in range(2)] == [{tp: 20}] * 2
    finally:
        client.close()


ODD_TIMES = {"times-without-timestamps": "no timestamp", "times-before": f"the older timestamp {FIRST + 999}"}


@pytest.mark.parametrize("odd", ODD_TIMES)
def test_an_odd_answer_to_a_time_is_not_believed(kfake_with, stream_of, capsys, odd):
    kfake = kfake_with(answers=[odd])
    topic = kfake.create_topic("orders")
    produce(kfake, topic, [Record(0, None, b"%d" % n, (), FIRST + 1000 * n) for n in range(5)])
    text = f"orders-0: these brokers answer that offset 0 is the first one from time {FIRST + 1000} on, with"
    stream = stream_of(kfake, topic, startingTimestamp=FIRST + 1000)
    del stream.settings["startingOffsets"]
    with pytest.raises(GroupKafkaError, match=f"{text} {ODD_TIMES[odd]}"):
        batch_values(stream.settings)
    stream.restart()
    with pytest.raises(GroupKafkaError, match=text):
        stream.trigger()
    with TopicAdmin(client_options(kfake.bootstrap_servers)) as admin:
        admin.leaders([topic])
        with pytest.raises(BrokerError, match=text):
            admin.lookups("looking up times", [{TopicPartition(topic, 0): FIRST + 1000}])
        with pytest.raises(BrokerError, match=text):
            admin.offsets_at([TopicPartition(topic, 0)], FIRST + 1000)


def test_offsets_of_all_topics_are_asked_for_in_a_version_that_can_be_read(kfake_with, stream_of, capsys):
    kfake = kfake_with(answers=["no-offsets-of-all-topics"])
    topic = kfake.create_topic("orders")
    send(kfake, topic, 0, range(5))
    stream = stream_of(kfake, topic)
    stream.trigger()
    stream.trigger()
    assert main(["describe", "--bootstrap-server", kfake.bootstrap_servers, "--group", "billing"]) == 0
    assert "orders  0          5               5               0" in capsys.readouterr().out
    stream.reader.stop()
    assert main(["reset", "--bootstrap-server", kfake.bootstrap_servers, "--group", "billing", "--to-earliest"]) == 0


def test_an_unknown_group_has_no_offsets(kfake_with, stream_of, capsys):
    kfake = kfake_with()
    topic = kfake.create_topic("orders")
    send(kfake, topic, 0, range(5))
    stream = stream_of(kfake, topic, assign=f'{{"{topic}":[0]}}')
    assert stream.trigger() == [0, 1, 2, 3, 4]
    assert main(["describe", "--bootstrap-server", kfake.bootstrap_servers, "--group", "none"]) == 1
    assert "there is no group none" in capsys.readouterr().err


def test_a_group_that_cannot_be_looked_at_is_a_line_beside_the_others(kfake_with, stream_of, capsys):
    kfake = kfake_with(answers=["one-group-denied"])
    topic = kfake.create_topic("orders")
    send(kfake, topic, 0, range(5))
    for group in ("billing", "denied"):
        stream = stream_of(kfake, topic, group)
        stream.trigger()
        stream.trigger()
    assert main(["describe", "--bootstrap-server", kfake.bootstrap_servers]) == 0
    said = capsys.readouterr()
    assert "group billing: Stable" in said.out
    assert "group denied cannot be shown: describing group denied: GROUP_AUTHORIZATION_FAILED" in said.err


def test_settings_are_not_asked_for_by_their_names(kfake_with):
    kfake = kfake_with(answers=["no-settings-by-name"])
    run = Run(transaction_options(kfake.bootstrap_servers, "copy"), kfake.create_topic("output", 2))
    run.batch(0)
    close_all()


def test_a_producer_that_is_expected_and_refused_is_named(kfake_with, caplog):
    kfake = kfake_with(answers=["no-expected-producers"])
    options = transaction_options(kfake.bootstrap_servers, "copy", limit_ms=3000)
    run = Run(options, kfake.create_topic("output", 2))
    with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR: .*which producer it takes.*KIP-360"):
        run.batch(0)
    close_all()


def _committed(cluster, group):
    with GroupAdmin(client_options(cluster.bootstrap_servers)) as admin:
        return {tp: found.offset for tp, found in admin.committed(group).items()}


def test_a_process_that_was_replaced_is_fenced(kfake_with, stream_of):
    kfake = kfake_with()
    topic = kfake.create_topic("orders")
    send(kfake, topic, 0, range(5))
    first = stream_of(kfake, topic, **{"kafka.group.instance.id": "one"})
    assert first.trigger() == [0, 1, 2, 3, 4]
    second = stream_of(kfake, topic, **{"kafka.group.instance.id": "one"})
    assert second.trigger() == [0, 1, 2, 3, 4]
    send(kfake, topic, 0, [5])
    with pytest.raises(FencedError):
        first.trigger()
