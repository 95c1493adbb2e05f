"""Reactions above the client: those of a query with its positions and its running micro-batch."""

import pytest
from support.scripted import FOREVER
from test_cells import BILLS, COMMIT, HEARTBEAT, JOIN, OFFSET_FETCH, ORDERS, SYNC, cells, joins

from spark_kafka_group.errors import CommitError, FencedError, MembershipError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.commit_metadata import commit_metadata
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.reactions import Reaction, Request

ALL = {ORDERS, TopicPartition("orders", 1), BILLS}
LIMIT = 6
"""Offsets a micro-batch: two of ten in each partition's log, then the next two."""


@pytest.fixture
def driver(broker, driver_of):
    """A driver with a running micro-batch: two records a partition, generation 1."""
    driver = driver_of()
    driver.start = driver.initial_offset()
    driver.end = driver.latest_offset(driver.start, LIMIT)
    wait_until(lambda: broker.generation == driver.end["@group"]["generation"], within=30)
    broker.forget_received()
    return driver


def ends(offset):
    """Partition to offset."""
    return {TopicPartition(t, int(p)): o for t, ps in offset.items() if t != "@group" for p, o in ps.items()}


def starts(offset):
    """Where the batch that ends at `offset` began: all of it, as nothing here says that Spark keeps what was before."""
    return ends(offset["@group"]["from"])


def committed(broker):
    return {tp: offset for tp, (offset, _) in broker.committed.items()}


@cells(Reaction.RETAKE, Reaction.JOIN_AS_NEW, of=(COMMIT,))
def test_a_batch_whose_commit_came_too_late_is_committed_in_the_next_generation(broker, driver, request_, error):
    broker.answer(COMMIT, error)
    following = driver.latest_offset(driver.end, LIMIT)
    assert committed(broker) == ends(driver.end) == dict.fromkeys(ALL, 2)
    assert ends(following) == dict.fromkeys(ALL, 4)
    assert starts(following) == ends(driver.end)
    assert [m.generation_id_or_member_epoch for m in broker.received(COMMIT)] == [1, 2]
    assert len(broker.received(OFFSET_FETCH)) == 3  # for the positions, before the commit, and for its note after


def test_a_new_query_starts_at_its_starting_offsets_although_membership_is_lost_as_it_commits_them(broker, driver_of):
    broker.committed[ORDERS] = 7, "somebody else"
    broker.answer(COMMIT, "UNKNOWN_MEMBER_ID")
    driver = driver_of(startingOffsets="earliest")
    end = driver.latest_offset(driver.initial_offset(), LIMIT)
    assert end["@group"]["from"]["orders"] == {"0": 0, "1": 0}
    assert committed(broker)[ORDERS] == 0


def test_sparks_word_on_the_batch_before_does_not_commit_the_one_that_is_planned(broker, driver):
    following = driver.latest_offset(driver.end, LIMIT)
    broker.forget_received()
    driver.commit(driver.end)  # which Spark calls while it builds the next batch
    assert broker.received(COMMIT) == []
    assert committed(broker) == ends(driver.end)
    driver.commit(following)
    assert committed(broker) == ends(following)


@cells(Reaction.RETAKE, Reaction.JOIN_AS_NEW, of=(HEARTBEAT,))
def test_membership_lost_while_a_batch_runs_is_taken_up_again_with_its_positions(broker, driver, request_, error):
    broker.answer(HEARTBEAT, error)
    wait_until(driver._session.member.client.lost, within=30)
    following = driver.latest_offset(driver.end, LIMIT)
    assert committed(broker) == ends(driver.end)
    assert ends(following) == dict.fromkeys(ALL, 4)
    kinds = [message.name.removesuffix("Request") for message in broker.received()]
    # Before it joins again, a driver that waits for its trigger may look up whether the batch is committed.
    # For the positions, before the commit, and for the note of the first commit.
    assert kinds[kinds.index(SYNC.value) :].count(OFFSET_FETCH.value) == 3


@cells(Reaction.RETAKE, Reaction.JOIN_AS_NEW, of=(JOIN, SYNC))
def test_membership_lost_while_joining_takes_positions_again(broker, driver, request_, error):
    broker.answer(request_, error)
    following = driver.latest_offset(driver.end, LIMIT)  # commits, then a new generation
    assert committed(broker) == ends(driver.end)
    assert ends(following) == dict.fromkeys(ALL, 4)
    assert len(broker.received(OFFSET_FETCH)) == 2  # for the positions, and for the note of the first commit


def test_offsets_that_a_member_in_between_committed_are_gone_on_from(broker, driver):
    assert driver.latest_offset(driver.end, LIMIT) != driver.end
    broker.committed[ORDERS] = 7, "somebody else"
    broker.remove_member()
    wait_until(driver._session.member.client.lost, within=30)
    after = dict.fromkeys(ALL, 4)
    start = {"orders": {"0": 4, "1": 4}, "bills": {"0": 4}, "@group": driver.end["@group"]}
    following = driver.latest_offset(start, None)
    assert starts(following) == after | {ORDERS: 7}
    assert ends(following) == dict.fromkeys(ALL, 10)
    assert committed(broker) == after | {ORDERS: 7}


@cells(Reaction.REJOIN, of=(HEARTBEAT,))
def test_a_rebalance_while_a_batch_runs_waits_for_its_commit(broker, driver, request_, error):
    broker.answer(HEARTBEAT, error)
    wait_until(driver._session.member.client.rejoin_needed, within=30)
    heard = len(broker.received(HEARTBEAT))
    wait_until(lambda: len(broker.received(HEARTBEAT)) >= heard + 3, within=30)
    assert joins(broker) == []  # although there was time
    following = driver.latest_offset(driver.end, LIMIT)
    order = [m.name for m in broker.received() if m.name in ("OffsetCommitRequest", "JoinGroupRequest")]
    assert order[:2] == ["OffsetCommitRequest", "JoinGroupRequest"]
    assert joins(broker)[0] == "member-1"
    assert ends(following) == dict.fromkeys(ALL, 4)


@cells(Reaction.REJOIN, of=(JOIN, SYNC), but="MEMBER_ID_REQUIRED")
def test_a_rebalance_while_joining_loses_nothing(broker, driver, request_, error):
    broker.answer(request_, error)
    following = driver.latest_offset(driver.end, LIMIT)
    assert set(joins(broker)) == {"member-1"}
    assert committed(broker) == ends(driver.end)
    assert ends(following) == dict.fromkeys(ALL, 4)


def test_a_coordinator_that_moves_while_a_batch_runs_changes_nothing(broker, driver_of):
    driver = driver_of(generation="stable")
    end = driver.latest_offset(driver.initial_offset(), LIMIT)
    broker.forget_received()
    broker.move_coordinator()
    following = driver.latest_offset(end, LIMIT)
    assert committed(broker) == ends(end)
    assert joins(broker) == []
    assert following["@group"]["generation"] == end["@group"]["generation"] == 1


@cells(Reaction.FENCED, of=(JOIN, SYNC, COMMIT))
def test_a_query_that_was_replaced_stops(broker, driver, request_, error):
    broker.answer(request_, error)
    with pytest.raises(FencedError, match=error):
        driver.latest_offset(driver.end, LIMIT)


def test_a_query_whose_heartbeats_are_refused_stops_at_the_next_trigger_without_data(broker, driver):
    end = driver.latest_offset(driver.end, None)
    assert driver.latest_offset(end, None) == end
    broker.answer(HEARTBEAT, "GROUP_AUTHORIZATION_FAILED", FOREVER)
    heard = len(broker.received(HEARTBEAT))
    wait_until(lambda: len(broker.received(HEARTBEAT)) > heard, within=30)
    with pytest.raises(MembershipError, match="heartbeats of group billing: GROUP_AUTHORIZATION_FAILED: .*Read on Gr"):
        wait_until(lambda: driver.latest_offset(end, None) != end, within=30)


def test_a_commit_that_is_refused_in_part_says_which_rows_are_in_the_sink(broker, driver):
    broker.answer(COMMIT, {ORDERS: "TOPIC_AUTHORIZATION_FAILED"})
    with pytest.raises(CommitError) as raised:
        driver.latest_offset(driver.end, LIMIT)
    text = str(raised.value)
    assert "TOPIC_AUTHORIZATION_FAILED for orders-0 (bills-0 orders-1 committed)" in text
    assert "orders-0[0,2)" in text.partition("The rows of ")[2].partition(" are in the sink")[0]


def test_rows_in_the_sink_are_not_read_again_when_the_group_rebalanced_during_the_first_commit(broker, driver_of):
    broker.committed = dict.fromkeys(ALL, (3, "left there by somebody else"))
    driver = driver_of(startingOffsets="group")
    end = driver.latest_offset(driver.initial_offset(), LIMIT)
    assert ends(end) == dict.fromkeys(ALL, 5)
    broker.answer(COMMIT, "REBALANCE_IN_PROGRESS")
    following = driver.latest_offset(end, LIMIT)
    assert committed(broker) == ends(end)
    assert ends(following) == dict.fromkeys(ALL, 7)


def test_steady_batches_look_up_neither_positions_nor_the_coordinator(broker, driver):
    offset = driver.latest_offset(driver.end, LIMIT)
    broker.forget_received()  # the first commit's note is looked for
    for _ in range(3):
        offset = driver.latest_offset(offset, LIMIT)
    assert len(broker.received(COMMIT)) == 3
    assert broker.received(OFFSET_FETCH) == []
    assert broker.received(Request.FIND_COORDINATOR) == []


def test_a_process_that_was_replaced_notices_so_whatever_rebalances_come_before_its_next_trigger(broker, driver_of):
    driver = driver_of()
    end = driver.latest_offset(driver.initial_offset(), None)
    assert driver.latest_offset(end, None) == end
    broker.remove_member()
    broker.generation = 4  # its successor came, went on and left
    broker.committed[ORDERS] = 12, commit_metadata(end["@group"]["reader"], 4, 3)
    client = driver._session.member.client
    wait_until(lambda: client.current().id == 5 and not client.rejoin_needed(), within=30)
    client.request_rejoin()  # as when others come
    wait_until(lambda: client.current().id == 6 and not client.rejoin_needed(), within=30)
    with pytest.raises(FencedError, match="another process went on with this query, up to generation 4"):
        driver.latest_offset(end, None)
