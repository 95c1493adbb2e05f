"""A topic is deleted, and the group rebalances again before the query has looked at what is left."""

import contextlib

from scripted import FOREVER
from test_cells import HEARTBEAT, ORDERS
from test_outages import BRIEF

from spark_kafka_group.driver.membership.siblings import Siblings
from spark_kafka_group.options.subscription import Subscription
from spark_kafka_group.testing import wait_until

BILLS_ONLY = Subscription(topics=frozenset({"bills"}))


def test_positions_of_a_deleted_topic_are_not_asked_for_while_others_hold_up_a_rebalance(broker, driver_of, tmp_path):
    """1. Positions are known, and no batch has had them. 2. A topic is deleted. 3. The query has forgotten its
    position, and looks up the ends of the other logs, without an answer. 4. Another source of it holds up a rebalance.
    """
    quick = {"startingOffsets": "latest", "kafka.metadata.max.age.ms": "200"}
    driver = driver_of(tmp_path, **BRIEF | quick)
    start = driver.initial_offset()
    assert driver.latest_offset(start) == start
    session = driver._session
    del broker.topics["bills"]
    wait_until(lambda: not any(tp.topic == "bills" for tp in session.member.owned), within=30)
    broker.takes_s["ListOffsets"] = 1.0
    assert driver.latest_offset(start) == start
    assert driver.report_latest_offset()["@group"]["brokersAway"]
    broker.takes_s |= {"ListOffsets": 0, "JoinGroup": 4.0}
    with contextlib.closing(Siblings(tmp_path, "billing", "another", BILLS_ONLY)):
        broker.answer(HEARTBEAT, "REBALANCE_IN_PROGRESS", FOREVER)
        wait_until(session.member.client.rejoin_needed, within=30)
        assert driver.latest_offset(start) == start
        assert not session.member.undisturbed()
    broker.behave()
    broker.takes_s.clear()
    assert driver.latest_offset(start) == start
    assert session.standing.starts(session.member.owned)[ORDERS] == 10
