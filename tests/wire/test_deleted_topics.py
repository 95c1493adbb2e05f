"""Topics that are deleted while something else happens to the group."""

import contextlib

from support.scripted import CODES, FOREVER
from test_cells import BILLS, HEARTBEAT, ORDERS
from test_driver_reactions import LIMIT, committed, ends
from test_outages import BRIEF

from spark_kafka_group.driver.membership.other_sources import OtherSources
from spark_kafka_group.options.reading import Subscription
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
    with contextlib.closing(OtherSources(tmp_path, "billing", "another", BILLS_ONLY)):
        broker.answer(HEARTBEAT, "REBALANCE_IN_PROGRESS", FOREVER)
        wait_until(session.member.client.rejoin_needed, within=30)
        assert driver.latest_offset(start) == start
        assert not session.member.undisturbed()
    broker.behave()
    broker.takes_s.clear()
    assert driver.latest_offset(start) == start
    assert session.standing.starts(session.member.owned)[ORDERS] == 10


def test_membership_that_is_lost_while_the_other_topics_of_a_batch_are_committed_is_taken_up_again(broker, driver_of):
    """1. The commit of a batch is refused, as a topic was deleted. 2. Membership is lost. 3. The rest is committed."""
    driver = driver_of(failOnDataLoss="false", **BRIEF)
    end = driver.latest_offset(driver.initial_offset(), LIMIT)
    take, of_others = broker._OffsetCommit, []

    def commit(message, codes=None):
        if BILLS.topic in {topic.name for topic in message.topics}:
            return take(message, {BILLS: CODES["UNKNOWN_TOPIC_OR_PARTITION"]})
        if not of_others:
            broker.member_id, broker.generation = "", broker.generation + 1
        of_others.append(message)
        return take(message)

    broker._OffsetCommit = commit
    del broker.topics[BILLS.topic]
    following = wait_until(lambda: (o := driver.latest_offset(end, LIMIT)) != end and o, within=30)
    assert of_others
    assert committed(broker)[ORDERS] == 2
    assert ends(following)[ORDERS] > 2
