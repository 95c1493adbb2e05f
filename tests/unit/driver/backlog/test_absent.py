"""Topics that a query waits for are named again, ever more seldom, as long as they are waited for."""

import logging

import pytest

from spark_kafka_group.driver.backlog.absent import AwaitedTopics
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.values.offsets import TopicPartition

MINUTE = 60.0


@pytest.fixture
def said(caplog):
    """Looks once or more a minute for so many minutes; returns the warnings, each with its minute."""
    caplog.set_level(logging.WARNING)

    def run(subscription, minutes, known=(), ends=None, a_minute=10):
        now = [0.0]
        waiting, found = AwaitedTopics("billing", subscription, clock=lambda: now[0]), {}
        for look in range(minutes * a_minute + 1):
            now[0] = look * MINUTE / a_minute
            waiting.look(lambda: set(known), ends or {})
            if caplog.records:
                found[look / a_minute] = caplog.messages[:]
                caplog.clear()
        return found

    return run


def test_a_missing_topic_is_named_after_ten_minutes_and_then_after_twice_as_long_each_time(said):
    message = "group billing: still no topic ordersss: create it, or correct its name"
    named = said(Subscription(("orders", "ordersss")), 150, [TopicPartition("orders", 0)])
    assert named == {10: [message], 30: [message], 70: [message], 150: [message]}


def test_a_missing_topic_is_named_once_a_day_at_least(said):
    hours = [minutes / 60 for minutes in said(Subscription(("ordersss",)), 60 * 24 * 4, a_minute=1)]
    assert [later - before for before, later in zip(hours[-3:], hours[-2:], strict=False)] == [24, 24]


def test_an_empty_topic_is_named(said):
    message = "group billing: still no record in topic ordersss: is its name right?"
    known = [TopicPartition("ordersss", 0), TopicPartition("ordersss", 1)]
    assert said(Subscription(("ordersss",)), 10, known, dict.fromkeys(known, 0)) == {10: [message]}


@pytest.mark.parametrize(
    "ends", [{("orders", 0): 0}, {("orders", 0): 0, ("orders", 1): 1}], ids=["others read", "record"]
)
def test_a_topic_of_which_others_may_have_records_is_not_named(said, ends):
    ends = {TopicPartition(*tp): end for tp, end in ends.items()}
    assert said(Subscription(("orders",)), 10, [TopicPartition("orders", 0), TopicPartition("orders", 1)], ends) == {}


def test_a_retry_topic_may_be_missing_or_empty(said):
    retried = Subscription(("orders", "orders-retry-5000", "orders-retry-60000"), delays_ms=(5000, 60000))
    known = [TopicPartition("orders", 0), TopicPartition("orders-retry-5000", 0)]
    assert said(retried, 10, known, dict(zip(known, (1, 0), strict=True))) == {}


def test_a_pattern_that_finds_nothing_is_named(said):
    message = "group billing: still no topic that subscribePattern (ordersss.*) finds"
    assert said(Subscription(pattern="ordersss.*"), 10) == {10: [message]}


def test_a_topic_that_came_and_went_is_waited_for_again(caplog):
    now = [0.0]
    waiting = AwaitedTopics("billing", Subscription(("orders",)), clock=lambda: now[0])
    for minutes, known in ((0, set()), (9, {TopicPartition("orders", 0)}), (10, set()), (19, set()), (20, set())):
        now[0] = minutes * MINUTE
        assert caplog.messages == []
        waiting.look(lambda known=known: known, {TopicPartition("orders", 0): 1})
    assert len(caplog.messages) == 1
