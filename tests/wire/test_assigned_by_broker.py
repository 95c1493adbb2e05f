"""A query in a group in which the broker assigns looks at the group, as heartbeats do not tell all."""

import time

import pytest
from test_cells import JOIN

from spark_kafka_group.driver.membership import member
from spark_kafka_group.testing import wait_until
from spark_kafka_group.wire.reactions import Request


@pytest.fixture
def driver(broker, driver_of, monkeypatch):
    """A driver that has read what there is, in a group with a newer member."""
    monkeypatch.setattr(member, "LOOK_EVERY_S", 0.2)
    broker.assigns, broker.newer_members = True, 1
    driver = driver_of()
    driver.start = driver.latest_offset(driver.initial_offset(), None)
    assert driver.latest_offset(driver.start, None) == driver.start
    broker.forget_received()
    return driver


def strategy(driver):
    driver.latest_offset(driver.start, None)
    return driver.report_latest_offset()["@group"]["strategy"]


def test_progress_names_the_brokers_assignor_and_then_the_members_strategy(broker, driver):
    wait_until(lambda: strategy(driver) == "uniform", within=10)
    broker.become_classic(broker.generation)
    wait_until(lambda: strategy(driver) == "range", within=10)
    assert driver.report_latest_offset()["@group"]["protocol"] == "classic"


def test_a_member_joins_again_where_the_broker_waits_for_that(broker, driver):
    broker.newer_members, broker.waits = 0, True
    wait_until(lambda: broker.received(JOIN), within=10)
    assert not broker.waits
    wait_until(lambda: strategy(driver) == "uniform", within=10)
    assert len(broker.received(JOIN)) == 1


def test_a_member_leaves_the_assignment_to_newer_members_while_there_are_some(broker, driver):
    broker.waits = True
    looks = len(broker.received(Request.HEARTBEAT))
    wait_until(lambda: len(broker.received(Request.HEARTBEAT)) > looks + 10, within=30)
    assert strategy(driver) == "uniform"
    assert broker.received(JOIN) == []


def test_a_coordinator_that_is_slow_to_describe_the_group_does_not_hold_up_spark_s_calls_for_as_long(broker, driver):
    broker.takes_s["ConsumerGroupDescribe"] = 3.0
    took_s = []
    while sum(took_s) < 1.5:  # the first calls may come before a look, or in the middle of one
        began = time.monotonic()
        driver.latest_offset(driver.start, None)
        took_s.append(time.monotonic() - began)
    broker.takes_s.clear()
    assert max(took_s) < 1.5
