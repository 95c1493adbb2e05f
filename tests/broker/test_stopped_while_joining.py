"""A query that is stopped while it joins leaves its group, in each phase of the join."""

import os
import signal
import threading
import time

import pytest
from running import settled
from support import members, numbered, options, produce, topic_with

from spark_kafka_group import FencedError, group_batch
from spark_kafka_group.testing import wait_until

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 100}
BOTH = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}


class StoppedError(Exception):
    """Interrupts a call, as SystemExit does in Spark's reader process."""


@pytest.fixture
def interrupted_when():
    """Calls, in the main thread as Spark does, until a condition holds; then a signal interrupts the call."""

    def stop(number, frame):
        raise StoppedError

    before = signal.signal(signal.SIGUSR1, stop)

    def call_for_ever(call):
        while True:
            call()

    def call_until(condition, call):
        def watch():
            wait_until(condition, within=30)
            os.kill(os.getpid(), signal.SIGUSR1)

        watching = threading.Thread(target=watch)
        watching.start()
        with pytest.raises(StoppedError):
            call_for_ever(call)
        watching.join()

    yield call_until
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def topic(kafka):
    return topic_with(kafka, [], partitions=3)


@pytest.fixture
def busy(kafka, group, topic, query_of):
    """A query that reads, and keeps the group waiting while its batch runs."""
    query = query_of(kafka, topic, group, **BOTH)
    wait_until(query.owned, within=30)
    return query


def keep_waiting(kafka, topic, busy):
    busy.may_finish.clear()
    produce(kafka, topic, numbered(30, 3))
    busy.running.wait(30)


def instances(kafka, group):
    return {member["group_instance_id"] for member in members(kafka, group)}


def name_of(driver):
    return driver._session.member.client._coordinator.group_instance_id


def in_group(kafka, group, driver):
    """Whether the group waits for others, with this driver in the join."""

    def reached():
        session = driver._session
        return session and name_of(driver) in instances(kafka, group) and kafka.group_state(group)[0] != "Stable"

    return reached


def test_a_query_that_is_stopped_in_a_rebalance_leaves_the_group(
    kafka, group, topic, busy, driver_of, interrupted_when
):
    driver = driver_of(kafka, topic, group, **BOTH)
    start = driver.initial_offset()
    driver.latest_offset(start, None)
    settled(kafka, group, 2)
    keep_waiting(kafka, topic, busy)
    third = driver_of(kafka, topic, group, **BOTH)
    joining = threading.Thread(target=third.latest_offset, args=(third.initial_offset(), None))
    joining.start()
    name, coordinator = name_of(driver), driver._session.member.client._coordinator
    interrupted_when(coordinator.rebalance_in_progress, lambda: driver.latest_offset(start, None))
    driver.stop()
    assert name not in instances(kafka, group)
    busy.may_finish.set()
    joining.join(30)
    wait_until(lambda: len(busy.owned()) + len(third._session.member.generation.assignment) == 3, within=30)
    assert instances(kafka, group) == {name_of(busy.driver), name_of(third)}


def test_a_query_that_is_stopped_in_its_very_first_join_leaves_the_group(
    kafka, group, topic, busy, driver_of, interrupted_when
):
    keep_waiting(kafka, topic, busy)
    driver = driver_of(kafka, topic, group, **BOTH)
    start = driver.initial_offset()
    interrupted_when(in_group(kafka, group, driver), lambda: driver.latest_offset(start, None))
    name, began = name_of(driver), time.monotonic()
    driver.stop()
    assert time.monotonic() - began < 20
    assert name not in instances(kafka, group)
    busy.may_finish.set()
    wait_until(lambda: len(busy.owned()) == 3, within=30)
    assert instances(kafka, group) == {name_of(busy.driver)}


def test_a_query_that_is_stopped_before_the_group_has_seen_its_first_join_leaves_no_member(
    kafka, group, topic, busy, driver_of, interrupted_when
):
    keep_waiting(kafka, topic, busy)
    driver = driver_of(kafka, topic, group, **BOTH)
    start = driver.initial_offset()

    def joins():
        session = driver._session
        return session and session.member.client._coordinator._join_task

    interrupted_when(joins, lambda: driver.latest_offset(start, None))
    name = name_of(driver)
    driver.stop()
    assert name not in instances(kafka, group)
    busy.may_finish.set()
    assert len(settled(kafka, group, 1)) == 1


def test_a_query_that_was_replaced_does_not_throw_out_the_process_that_has_taken_its_place(
    kafka, group, topic, busy, driver_of
):
    keep_waiting(kafka, topic, busy)
    replaced, heir = (driver_of(kafka, topic, group, **BOTH) for _ in range(2))
    start, errors = replaced.initial_offset(), []

    def join_first():
        try:
            replaced.latest_offset(start, None)
        except FencedError as error:
            errors.append(error)

    joining = [threading.Thread(target=join_first), threading.Thread(target=heir.latest_offset, args=(start, None))]
    joining[0].start()
    wait_until(in_group(kafka, group, replaced), within=30)
    own = {member["member_id"] for member in members(kafka, group)}
    joining[1].start()
    wait_until(lambda: {member["member_id"] for member in members(kafka, group)} != own, within=30)
    before = {member["member_id"] for member in members(kafka, group)}
    idler = replaced._idler._thread
    replaced.stop()  # while it waits whether that process lives
    joining[0].join(30)
    assert errors
    wait_until(lambda: not idler.is_alive(), within=10)  # or it would join again until stop()
    assert {member["member_id"] for member in members(kafka, group)} == before
    busy.may_finish.set()
    joining[1].join(30)
    assert heir._session.member.generation.member_id in before


def test_a_batch_read_that_is_interrupted_leaves_the_group(kafka, group, topic, busy, interrupted_when):
    keep_waiting(kafka, topic, busy)

    def read():
        with group_batch(None, options(kafka, topic, group)):
            raise AssertionError("the join waits for the query")

    interrupted_when(lambda: len(members(kafka, group)) == 2, read)
    assert len(members(kafka, group)) == 1
    busy.may_finish.set()
    wait_until(lambda: len(busy.owned()) == 3, within=30)
