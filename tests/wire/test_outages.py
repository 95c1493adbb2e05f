"""Brokers that are away, all of them or those that matter: the query waits, says so once, and goes on where it was."""

import contextlib
import threading
import time

import pytest
from support.scripted import FOREVER
from test_cells import BILLS, COMMIT, JOIN, ORDERS
from test_driver_reactions import ALL, LIMIT, committed, ends

from spark_kafka_group.driver.membership.other_sources import OtherSources
from spark_kafka_group.errors import BrokerTimeoutError, CommitError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import GroupOffset
from spark_kafka_group.wire.client import request_timeouts

BRIEF = {
    "kafka.request.timeout.ms": "600",
    "kafka.fetch.max.wait.ms": "100",
    "kafka.default.api.timeout.ms": "700",
    "kafka.socket.connection.setup.timeout.ms": "1000",
}


@pytest.fixture
def running(broker, driver_of):
    """Makes drivers with a running micro-batch: two records a partition, generation 1."""

    def make(**more):
        driver = driver_of(**BRIEF | more)
        driver.end = driver.latest_offset(driver.initial_offset(), LIMIT)
        assert driver.plan({"@group": driver.end["@group"]}, driver.end)
        broker.forget_received()
        return driver

    return make


def away(driver):
    return (driver.report_latest_offset() or {}).get("@group", {}).get("brokersAway")


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if "away" in r.getMessage() and r.levelname == "WARNING"]


def test_brokers_that_all_go_away_are_waited_for_with_one_warning(broker, running, caplog):
    driver = running()
    broker.go_away()
    for attempts in (1, 2, 3):
        assert driver.latest_offset(driver.end, LIMIT) == driver.end
        shown = away(driver)
        assert shown["attempts"] == attempts
        assert shown["sinceMs"] <= shown["lastAttemptMs"] <= time.time() * 1000 + 1
    broker.come_back()
    following = wait_until(lambda: (o := driver.latest_offset(driver.end, LIMIT)) != driver.end and o, within=30)
    assert committed(broker) == ends(driver.end)
    assert ends(following) == dict.fromkeys(ALL, 4)
    assert away(driver) is None
    (warning,) = warnings(caplog)
    assert "committing offsets of group billing: no answer within kafka.default.api.timeout.ms" in warning
    assert "orders-0[0,2)" in warning.partition("The rows of ")[2].partition(" are in the sink")[0]


@pytest.mark.parametrize("set_by_s", [3600, -3600])
def test_a_clock_that_is_set_meanwhile_makes_no_outage_longer(broker, running, monkeypatch, set_by_s):
    driver, real, began_s = running(), time.time, time.monotonic()
    broker.go_away()
    assert driver.latest_offset(driver.end, LIMIT) == driver.end
    monkeypatch.setattr(time, "time", lambda: real() + set_by_s)
    monkeypatch.setattr(driver._outage, "_now_s", time.time)
    shown = driver.report_latest_offset()["@group"]
    assert 0 < shown["timestampMs"] - shown["brokersAway"]["sinceMs"] <= (time.monotonic() - began_s) * 1000


def test_brokers_that_say_nothing_are_waited_for_as_those_that_are_gone(broker, running, caplog):
    driver = running()
    broker.silence(1, 2)
    assert driver.latest_offset(driver.end, LIMIT) == driver.end
    broker.silence()
    following = wait_until(lambda: (o := driver.latest_offset(driver.end, LIMIT)) != driver.end and o, within=30)
    assert committed(broker) == ends(driver.end)
    assert ends(following) == dict.fromkeys(ALL, 4)
    assert len(warnings(caplog)) == 1


def test_an_unanswered_commit_is_made_between_triggers(broker, running):
    driver = running()
    broker.silence(1, 2)
    assert driver.latest_offset(driver.end, LIMIT) == driver.end
    broker.silence()
    wait_until(lambda: committed(broker) == ends(driver.end), within=30)


def test_an_unanswered_commit_is_made_before_a_rebalance_takes_partitions(broker, running):
    driver = running()
    broker.answer(COMMIT, "COORDINATOR_LOAD_IN_PROGRESS", FOREVER)
    assert driver.latest_offset(driver.end, LIMIT) == driver.end
    driver._session.member.client.request_rejoin()
    with pytest.raises(TimeoutError):
        wait_until(lambda: broker.received(JOIN), within=2)
    broker.behave()
    wait_until(lambda: broker.received(JOIN), within=30)
    order = [m.name for m in broker.received() if m.name in ("OffsetCommitRequest", "JoinGroupRequest")]
    assert order[order.index("JoinGroupRequest") - 1] == "OffsetCommitRequest"
    assert committed(broker) == ends(driver.end)


def test_a_session_that_expired_meanwhile_takes_the_batch_along_but_sets_back_no_member(broker, running):
    driver = running()
    broker.silence(1, 2)
    assert driver.latest_offset(driver.end, LIMIT) == driver.end
    broker.remove_member()
    broker.committed[ORDERS] = 7, "somebody else"
    broker.silence()
    following = wait_until(lambda: (o := driver.latest_offset(driver.end, None)) != driver.end and o, within=30)
    starts = GroupOffset.from_json(following).starts(GroupOffset.from_json(driver.end))
    assert starts == ends(driver.end) | {ORDERS: 7}
    assert committed(broker) == ends(driver.end) | {ORDERS: 7}
    assert broker.received(COMMIT)[-1].generation_id_or_member_epoch > 1


def test_what_somebody_else_committed_stays_when_positions_have_to_be_taken_twice(broker, running):
    driver = running()
    broker.remove_member()
    broker.committed[ORDERS] = 7, "somebody else"
    broker.answer(COMMIT, "UNKNOWN_MEMBER_ID")
    broker.answer(COMMIT, "COORDINATOR_LOAD_IN_PROGRESS", FOREVER)  # of the positions, after joining as new
    assert driver.latest_offset(driver.end, None) == driver.end
    broker.behave()
    following = wait_until(lambda: (o := driver.latest_offset(driver.end, None)) != driver.end and o, within=30)
    starts = GroupOffset.from_json(following).starts(GroupOffset.from_json(driver.end))
    assert starts == ends(driver.end) | {ORDERS: 7}
    assert committed(broker) == ends(driver.end) | {ORDERS: 7}


def test_maxbrokeroutage_ends_the_query_with_brokers_times_and_the_last_attempt(broker, running):
    driver = running(maxBrokerOutage="2s")
    broker.go_away()
    began = time.monotonic()
    with pytest.raises(BrokerTimeoutError) as raised:
        wait_until(lambda: driver.latest_offset(driver.end, LIMIT) != driver.end, within=30)
    assert 2 <= time.monotonic() - began < 30
    text = str(raised.value)
    assert all(f"127.0.0.1:{node.port}" in text for node in broker._nodes)
    assert "maxBrokerOutage is 2000 ms. The last attempt, at 20" in text
    assert "ECONNREFUSED" in text or "NodeNotReadyError" in text or "looking for brokers" in text


@pytest.mark.parametrize(
    "slow", [{"OffsetCommit": 1.2}, pytest.param({"Metadata": 0.8, "FindCoordinator": 0.8}, marks=pytest.mark.soak)]
)
def test_brokers_that_are_slow_are_not_given_up_again_and_again(broker, running, monkeypatch, slow):
    monkeypatch.setattr(request_timeouts, "ANY_BROKER_MS", 500)
    monkeypatch.setattr(request_timeouts, "ONE_BROKER_MS", 900)
    driver = running(**{"kafka.request.timeout.ms": "2400", "kafka.default.api.timeout.ms": "6000"})
    if "Metadata" in slow:
        broker.go_away()
        assert driver.latest_offset(driver.end, LIMIT) == driver.end
        broker.come_back()
    broker.takes_s |= slow
    wait_until(lambda: driver.latest_offset(driver.end, LIMIT) != driver.end, within=20)
    assert committed(broker) == ends(driver.end)
    broker.takes_s.clear()


def test_a_coordinator_that_goes_away_as_a_join_begins_is_not_taken_for_a_fence(broker, client):
    coordinator = client._coordinator
    broker.go_away()
    coordinator.request_rejoin()
    # Its connection may end between the look at it and the JoinGroup; nothing outside can hit that moment.
    begin, coordinator._do_join_and_sync_async = coordinator._do_join_and_sync_async, lambda: gone(coordinator, begin)
    assert client.join_within(700) is None
    client.check_not_fenced()


async def gone(coordinator, begin):
    coordinator.coordinator_dead("test")
    return await begin()


def test_brokers_that_come_back_at_other_addresses_are_asked_for_at_the_first_one(broker, running):
    with broker.entrance() as address:
        driver = running(**{"kafka.bootstrap.servers": address})
        broker.go_away()
        wait_until(lambda: driver.latest_offset(driver.end, LIMIT) == driver.end and away(driver), within=30)
        broker.come_back(elsewhere=True)
        wait_until(lambda: driver.latest_offset(driver.end, LIMIT) != driver.end, within=20)
    assert committed(broker) == ends(driver.end)


def test_without_rebootstrap_only_brokers_that_are_known_are_asked(broker, running):
    with broker.entrance() as address:
        driver = running(**{"kafka.bootstrap.servers": address, "kafka.metadata.recovery.strategy": "none"})
        broker.go_away()
        wait_until(lambda: driver.latest_offset(driver.end, LIMIT) == driver.end and away(driver), within=30)
        broker.come_back(elsewhere=True)
        broker.forget_received()
        for _ in range(3):
            assert driver.latest_offset(driver.end, LIMIT) == driver.end
        assert broker.received() == []


@pytest.mark.parametrize("arrived", [False, True])
def test_a_session_that_expires_before_a_batch_begins_does_not_end_a_query_of_several_sources(
    broker, driver_of, tmp_path, arrived
):
    driver = driver_of(tmp_path, **BRIEF)
    start = driver.initial_offset()
    end = driver.latest_offset(start, LIMIT)
    options = driver._options
    with contextlib.closing(OtherSources(tmp_path, options.group.id, "another", options.reading.subscription)):
        if arrived:  # the group's word that the batch gives way to a rebalance; its answer does not
            broker.takes_s["OffsetCommit"] = 0.9
        else:
            broker.answer(COMMIT, "COORDINATOR_LOAD_IN_PROGRESS", FOREVER)
        driver._session.member.client.request_rejoin()
        wait_until(lambda: len(broker.received(COMMIT)) > 1, within=30)
        broker.remove_member()
        broker.behave()
        broker.takes_s.clear()
        tasks = driver.plan(start, end)
    assert bool(tasks) is not arrived  # who takes its partitions over starts where the group says
    following = driver.latest_offset(end, LIMIT)
    assert GroupOffset.from_json(following).starts(GroupOffset.from_json(end)) == dict.fromkeys(
        ALL, 0 if arrived else 2
    )


def test_with_availablenow_the_query_does_not_take_an_outage_for_its_end(broker, driver_of):
    driver = driver_of(**BRIEF)
    driver.prepare_available_now()
    end = driver.latest_offset(driver.initial_offset(), LIMIT)
    broker.go_away()
    back = threading.Timer(3, broker.come_back)
    back.start()
    try:
        assert ends(driver.latest_offset(end, LIMIT)) == dict.fromkeys(ALL, 4)
    finally:
        back.join()
    assert committed(broker) == ends(end)


def test_a_query_without_new_data_outlives_an_outage(broker, running, caplog):
    driver = running()
    end = driver.latest_offset(driver.end, None)
    assert driver.latest_offset(end, None) == end
    broker.go_away()
    wait_until(lambda: driver.latest_offset(end, None) == end and away(driver), within=30)
    broker.come_back()
    wait_until(lambda: driver.latest_offset(end, None) == end and not away(driver), within=30)
    assert len(warnings(caplog)) == 1
    assert committed(broker) == dict.fromkeys((*ALL, BILLS), 10)


def test_spark_may_tell_of_a_success_while_brokers_are_away(broker, running):
    driver = running()
    broker.go_away()
    driver.commit(driver.end)
    assert away(driver)
    broker.come_back()
    wait_until(lambda: committed(broker) == ends(driver.end), within=30)


def test_a_query_stops_at_once_while_brokers_are_away(broker, running, caplog):
    driver = running(**{"kafka.request.timeout.ms": "60000"})
    broker.silence(1, 2)
    assert driver.latest_offset(driver.end, LIMIT) == driver.end
    began = time.monotonic()
    driver.stop()
    assert time.monotonic() - began < 30
    assert "not committed, as the query ends" in caplog.text


def test_what_a_broker_refuses_for_good_still_ends_the_query(broker, running):
    driver = running()
    broker.answer(COMMIT, "GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(
        CommitError,
        match=r"GROUP_AUTHORIZATION_FAILED.*are in the sink. Restarted from its checkpoint, this query goes on after",
    ):
        driver.latest_offset(driver.end, LIMIT)


def test_brokers_that_a_query_has_never_reached_are_an_error(broker, driver_of):
    driver = driver_of(**BRIEF)
    broker.silence(1, 2)
    with pytest.raises(BrokerTimeoutError, match="kafka.request.timeout.ms"):
        driver.latest_offset(driver.initial_offset(), LIMIT)
