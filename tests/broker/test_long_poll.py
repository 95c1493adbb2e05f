"""A query that has read everything hears of records instead of asking for them."""

import socket
import time

import pytest
from running import Counted
from support import name, options
from support.relay import Bootstrap

from spark_kafka_group.driver.backlog.long_poll import LOOK_AGAIN_S, LongPoll
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import readable


@pytest.fixture
def watch_of(kafka, topic):
    """Makes watches of the topic, whose polls are short, and closes them. Their clock stands, so that they last."""
    made = []

    def make(clock=lambda: NOW, **more):
        given = options(kafka, topic) | {"kafka.fetch.max.wait.ms": "100"} | more
        made.append(LongPoll(Options.parse(given), clock))
        return made[-1]

    yield make
    for watch in made:
        watch.close()


NOW = 1000.0


def test_a_watch_is_quiet_until_a_record_comes(kafka, topic, watch_of):
    kafka.produce(topic, [b"before"], partition=0)
    watch = watch_of()
    watch.start({TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 0}, NOW)
    began = time.monotonic()
    while time.monotonic() - began < 0.5:  # polls end meanwhile, and others take their place
        assert watch.nothing_new()
    kafka.produce(topic, [b"new"], partition=1)
    wait_until(lambda: not watch.nothing_new(), within=30)
    assert not watch.nothing_new()  # until it has the ends of now
    watch.start({TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 1}, NOW)
    assert watch.nothing_new()


def test_a_record_that_came_after_a_poll_had_ended_is_heard_of_at_once(kafka, topic, watch_of, monkeypatch):
    monkeypatch.setattr("spark_kafka_group.driver.backlog.long_poll.PATIENCE_S", 5.0)
    kafka.produce(topic, [b"before"], partition=0)
    watch = watch_of()
    watch.start({TopicPartition(topic, 0): 1}, NOW)
    polls = [watch._brokers.connection(node_id) for node_id in watch._asked]
    wait_until(lambda: readable(polls), within=30)  # Spark was busy with something else meanwhile
    kafka.produce(topic, [b"new"], partition=0)
    assert not watch.nothing_new(5.0)


def test_a_poll_is_sent_again_over_another_connection_where_the_broker_is_about_to_close_the_first(
    kafka, topic, watch_of
):
    kafka.produce(topic, [b"before"], partition=0)
    watch = watch_of()
    watch.start({TopicPartition(topic, 0): 1}, NOW)
    polls = [watch._brokers.connection(node_id) for node_id in watch._asked]
    polls[0]._stale_at = time.monotonic()  # as by connections.max.reauth.ms
    wait_until(lambda: readable(polls), within=30)
    assert watch.nothing_new()
    others = [watch._brokers.connection(node_id) for node_id in watch._asked]
    assert others != polls
    kafka.produce(topic, [b"new"], partition=0)
    wait_until(lambda: not watch.nothing_new(), within=30)


def test_polls_go_on_after_a_broken_connection_although_no_bootstrap_server_is_left(
    kafka, topic, watch_of, monkeypatch
):
    monkeypatch.setattr("spark_kafka_group.driver.backlog.long_poll.AGAIN_AFTER_ERROR_S", 0.0)
    kafka.produce(topic, [b"before"], partition=0)
    with Bootstrap() as bootstrap:
        bootstrap.target = ("127.0.0.1", kafka.ports[0])
        watch = watch_of(**{
            "kafka.bootstrap.servers": bootstrap.address, "kafka.request.timeout.ms": "2000",
        })  # fmt: skip
        watch.start({TopicPartition(topic, 0): 1}, NOW)
        assert watch.nothing_new()
    for node_id in watch._asked:
        watch._brokers.connection(node_id)._sock.shutdown(socket.SHUT_RDWR)
    assert not watch.nothing_new()
    watch.start({TopicPartition(topic, 0): 1}, NOW)
    assert watch.nothing_new()
    kafka.produce(topic, [b"new"], partition=0)
    wait_until(lambda: not watch.nothing_new(), within=30)


def test_a_broker_is_asked_some_times_a_second_also_where_fetches_do_not_wait(kafka, topic, watch_of):
    kafka.produce(topic, [b"before"], partition=0)
    watch = watch_of(time.monotonic, **{"kafka.fetch.max.wait.ms": "0"})
    watch.start({TopicPartition(topic, 0): 1}, time.monotonic())
    (node_id,) = watch._asked
    sent = Counted(watch._brokers.connection(node_id), "send")
    began = time.monotonic()
    while sent.calls < 4:
        if not watch.nothing_new():  # a busy machine takes its time
            watch.start({TopicPartition(topic, 0): 1}, time.monotonic())
    assert time.monotonic() - began >= 0.29


def test_an_end_that_is_out_of_date_is_news(kafka, topic, watch_of):
    kafka.produce(topic, [b"a", b"b"], partition=0)
    watch = watch_of()
    watch.start({TopicPartition(topic, 0): 1}, NOW)
    wait_until(lambda: not watch.nothing_new(), within=30)


def test_a_topic_that_is_deleted_is_news_and_is_not_watched_again_at_once(kafka, topic, watch_of):
    kafka.produce(topic, [b"before"], partition=0)
    watch = watch_of()
    watch.start({TopicPartition(topic, 0): 1}, NOW)
    assert watch.nothing_new()
    kafka.delete_topic(topic)
    wait_until(lambda: not watch.nothing_new(), within=30)
    watch.start({TopicPartition(topic, 0): 1}, NOW)
    assert not watch.nothing_new()


def test_a_topic_that_is_deleted_is_asked_for_no_more(kafka, topic, watch_of, monkeypatch):
    monkeypatch.setattr("spark_kafka_group.driver.backlog.long_poll.AGAIN_AFTER_ERROR_S", 0.0)
    other = kafka.create_topic(name("other"))
    watch = watch_of()
    watch.start({TopicPartition(topic, 0): 0, TopicPartition(other, 0): 0}, NOW)
    assert watch.nothing_new()
    kafka.delete_topic(other)
    wait_until(lambda: not watch.nothing_new(), within=30)
    watch.start({TopicPartition(topic, 0): 0}, NOW)
    assert watch.nothing_new()
    assert watch._brokers._bootstrapped().cluster._topics == {topic}


def test_ends_looked_up_long_ago_are_looked_up_again_however_often_a_watch_begins(kafka, topic, watch_of):
    kafka.produce(topic, [b"before"], partition=0)
    watch = watch_of()
    watch.start({TopicPartition(topic, 0): 1}, NOW - LOOK_AGAIN_S / 2)
    assert watch.nothing_new()
    watch.start({TopicPartition(topic, 0): 1}, NOW - LOOK_AGAIN_S)
    assert not watch.nothing_new()


def test_nothing_to_watch_is_quiet_until_ends_are_to_be_looked_up_again(watch_of):
    watch = watch_of()
    watch.start({}, NOW)
    assert watch.nothing_new()
    watch.start({}, NOW - LOOK_AGAIN_S)
    assert not watch.nothing_new()


def new_end(driver, start):
    """The end of the next batch; None when there is none."""
    end = driver.latest_offset(start)
    return None if end == start else end


def test_a_query_that_has_read_everything_asks_seldom_and_misses_nothing(kafka, topic, group, driver_of):
    driver = driver_of(kafka, topic, group, startingOffsets="earliest")
    kafka.produce(topic, [b"0"], partition=0)
    start = driver.latest_offset(driver.initial_offset())
    assert driver.plan(driver.initial_offset(), start)
    assert driver.latest_offset(start) == start  # commits, and finds nothing more
    asked = Counted(driver._session.member.client, "end_offsets")
    began, triggers = time.monotonic(), 0
    while time.monotonic() - began < 2.5 * LOOK_AGAIN_S:
        assert driver.latest_offset(start) == start
        triggers += 1
        time.sleep(0.01)  # as Spark does between triggers
    assert triggers > 10
    assert 1 <= asked.calls <= 3
    for number in range(1, 6):
        kafka.produce(topic, [b"%d" % number], partition=number % 2)
        end = wait_until(lambda start=start: new_end(driver, start), within=LOOK_AGAIN_S / 2, every=0.01)
        driver.plan(start, end)
        start = end
        assert driver.latest_offset(start) == start
    assert asked.calls <= 20  # a look that finds a record, one that finds no more, and one a second


def test_a_member_that_joins_is_noticed_by_a_quiet_query(kafka, topic, group, driver_of, neighbour_of):
    driver = driver_of(kafka, topic, group, startingOffsets="earliest", **{"kafka.heartbeat.interval.ms": 200})
    kafka.produce(topic, [b"0"], partition=0)
    start = driver.latest_offset(driver.initial_offset())
    driver.plan(driver.initial_offset(), start)
    assert driver.latest_offset(start) == start
    neighbour = neighbour_of(kafka, topic, group)

    def shared():
        driver.latest_offset(start)
        return neighbour.assignment()

    theirs = {TopicPartition(*tp) for tp in wait_until(shared, within=20)}
    assert not theirs & driver._session.member.generation.assignment
