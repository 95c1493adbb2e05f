"""The driver's half against a real broker, without Spark: membership, commits and their failures."""

import json
import threading
import time

import pytest
from support import commit_for, committed, members, name, numbered, produce, throw_out, topic_with

from spark_kafka_group import FencedError, MembershipError
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import GroupOffset

QUICK = {"kafka.metadata.max.age.ms": 300}


def test_nothing_joins_before_the_first_offset_is_asked_for(kafka, group, driver_of):
    driver = driver_of(kafka, topic_with(kafka, numbered(3, 1)), group)
    driver.prepare_available_now()
    driver.initial_offset()
    assert kafka.group_state(group)[0] == "Dead"


def test_the_first_offset_is_the_same_however_often_it_is_asked_for(kafka, group, driver_of):
    driver = driver_of(kafka, "t", group)
    assert driver.initial_offset() == driver.initial_offset()


def test_without_new_data_the_offset_is_the_start_itself(kafka, group, driver_of):
    driver = driver_of(kafka, topic_with(kafka, numbered(3, 1)), group)
    end = driver.latest_offset(driver.initial_offset(), None)
    assert driver.latest_offset(end, None) == end
    assert driver.latest_offset(end, None) == end


def test_a_commit_names_its_reader_and_generation(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), None)
    driver.latest_offset(end, None)
    note = json.loads(kafka.committed(group)[topic, 0][1])
    assert note == {name: end["@group"][name] for name in ("reader", "generation", "batch")}
    assert note["batch"] == 0


def test_only_partitions_of_the_batch_are_committed(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(5, 1), partitions=3)  # all in partition 0
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), None)
    driver.latest_offset(end, None)
    assert committed(kafka, group) == {(topic, 0): 5}


def test_sparks_own_commit_counts_as_well_and_twice_is_harmless(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(5, 1), partitions=1)
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), None)
    driver.commit(end)
    assert committed(kafka, group) == {(topic, 0): 5}
    driver.commit(end)
    assert driver.latest_offset(end, None) == end


def test_the_tasks_of_a_batch_may_be_asked_for_again(kafka, group, driver_of):
    driver = driver_of(kafka, topic_with(kafka, numbered(30, 3)), group)
    start = driver.initial_offset()
    end = driver.latest_offset(start, None)
    assert driver.plan(start, end) == driver.plan(start, end) != []
    assert driver.plan(end, end) == []


def test_a_restarted_driver_replays_the_logged_batch_exactly(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(30, 3))
    first = driver_of(kafka, topic, group)
    start = first.initial_offset()
    end = first.latest_offset(start, 9)
    tasks = first.plan(start, end)
    produce(kafka, topic, numbered(30, 3))
    second = driver_of(kafka, topic, group)
    # Spark has no start for a first batch that did not finish: it asks the new reader for one.
    assert second.plan(second.initial_offset(), end) == tasks
    second.latest_offset(end, None)
    assert committed(kafka, group) == {(topic, p): 3 for p in range(3)}
    with pytest.raises(FencedError, match="another process has joined"):
        first.latest_offset(end, None)


def test_a_driver_that_lost_its_membership_joins_again_and_commits_what_is_proven(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(30, 3))
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), 9)
    throw_out(kafka, group)
    assert members(kafka, group) == []
    following = driver.latest_offset(end, 9)
    assert committed(kafka, group) == {(topic, p): 3 for p in range(3)}
    assert following[topic] == {"0": 6, "1": 6, "2": 6}
    before = GroupOffset.from_json(end)
    assert GroupOffset.from_json(following).starts(before) == before.positions


def test_a_batch_longer_than_session_and_poll_interval_is_committed_by_the_member_that_planned_it(
    kafka, group, driver_of
):
    topic = topic_with(kafka, numbered(30, 3))
    short = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 200, "max.poll.interval.ms": 1000}
    driver = driver_of(kafka, topic, group, **{f"kafka.{name}": value for name, value in short.items()})
    start = driver.initial_offset()
    end = driver.latest_offset(start, 9)
    driver.plan(start, end)
    before, began_s = members(kafka, group), time.monotonic()
    wait_until(lambda: time.monotonic() - began_s > 2.5, within=30)  # the batch runs
    driver.latest_offset(end, 9)
    assert [m["member_id"] for m in members(kafka, group)] == [m["member_id"] for m in before]
    assert {json.loads(note)["generation"] for _, note in kafka.committed(group).values()} == {1}
    assert committed(kafka, group) == {(topic, p): 3 for p in range(3)}
    assert driver.report_latest_offset()["@group"]["membershipsLost"] == 0


def test_batches_that_a_killed_process_committed_are_not_those_of_a_successor(kafka, group, driver_of, neighbour_of):
    """1. A follower is killed. 2. It is started again from an older checkpoint, in the generation of before, as its
    session is not over. 3. It loses its membership before it has committed anything."""
    topic = topic_with(kafka, [], partitions=4)
    leader = neighbour_of(kafka, topic, group).consumer
    wait_until(lambda: len(leader.assignment()) == 4, within=30)
    going_on = {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest", "onOffsetConflict": "group"}
    killed, ends = driver_of(kafka, topic, group, **going_on), []
    start = end = killed.initial_offset()

    def shares():
        assert killed.latest_offset(start, None) == start
        member = killed._session.member
        return not member.generation.leader and len(member.owned) == 2

    wait_until(shares, within=30)
    for _ in range(3):
        produce(kafka, topic, numbered(4, 4))
        end = wait_until(
            lambda before=end: (after := killed.latest_offset(before, None)) != before and after, within=30
        )
        killed.plan(ends[-1] if ends else start, end)
        ends.append(end)
    killed.latest_offset(end, None)  # commits the last of them
    killed._idler.stop()
    killed._session.member.client.close()  # without LeaveGroup
    killed._idler = killed._session = None
    live = driver_of(kafka, topic, group, **going_on)
    assert live.latest_offset(ends[0], None) == ends[0]
    assert live._session.member.generation.id == GroupOffset.from_json(end).generation
    throw_out(kafka, group)

    def goes_on():
        assert live.latest_offset(ends[0], None) == ends[0]
        member = live._session.member
        taken = live._session.standing.positioned == member.owned != frozenset()
        return taken and member.generation.id > GroupOffset.from_json(end).generation

    wait_until(goes_on, within=30)


def test_a_driver_that_joins_as_new_while_the_group_still_has_it_leads_the_group_again(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(30, 3))
    driver = driver_of(kafka, topic, group, **QUICK)
    end = driver.latest_offset(driver.initial_offset(), 9)
    first = driver._session.member.generation
    # As a coordinator says UNKNOWN_MEMBER_ID that does not know yet that another broker has taken the group over.
    driver._session.member.client._coordinator.reset_generation()
    following = driver.latest_offset(end, 9)
    second = driver._session.member.generation
    assert second.leader
    assert second.member_id != first.member_id
    assert second.id > first.id
    assert following[topic] == {"0": 6, "1": 6, "2": 6}
    assert committed(kafka, group) == {(topic, p): 3 for p in range(3)}
    kafka.add_partitions(topic, 4)
    produce(kafka, topic, numbered(40, 4))
    wait_until(lambda: "3" in driver.latest_offset(following, None)[topic], within=30)


def test_a_commit_that_no_broker_takes_is_a_warning_and_made_when_they_are_back(group, driver_of, caplog):
    with KafkaCluster() as kafka:
        topic = topic_with(kafka, numbered(30, 3))
        driver = driver_of(kafka, topic, group, **{"kafka.default.api.timeout.ms": 2000})
        end = driver.latest_offset(driver.initial_offset(), 9)
        kafka.node(0).kill()
        for _ in range(2):
            assert driver.latest_offset(end, None) == end
        assert driver.report_latest_offset()["@group"]["brokersAway"]["attempts"] == 2
        kafka.node(0).start()
        kafka.wait_until_ready()
        following = wait_until(lambda: (o := driver.latest_offset(end, None)) != end and o, within=30)
        assert committed(kafka, group) == {(topic, p): 3 for p in range(3)}
        assert following[topic] == {"0": 10, "1": 10, "2": 10}
        (warning,) = [r.getMessage() for r in caplog.records if "brokers are away" in r.getMessage()]
        assert f"The rows of {topic}-0[0,3), " in warning
        driver.stop()


@pytest.mark.soak
def test_a_coordinator_that_is_away_for_a_while_delays_a_commit_and_nothing_else(group, driver_of):
    with KafkaCluster() as kafka:
        topic = topic_with(kafka, numbered(30, 3))
        driver = driver_of(kafka, topic, group, **{"kafka.default.api.timeout.ms": 90_000})
        end = driver.latest_offset(driver.initial_offset(), None)
        kafka.node(0).kill()
        back = threading.Timer(1.0, kafka.node(0).start)
        back.start()
        try:
            assert driver.latest_offset(end, None) == end
        finally:
            back.join()
        kafka.wait_until_ready()
        assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}
        driver.stop()


def test_a_new_topic_partition_gets_noticed_while_the_query_runs(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    driver = driver_of(kafka, topic, group, startingOffsets="latest", **QUICK)
    start = driver.initial_offset()
    assert driver.latest_offset(start, None) == start
    kafka.add_partitions(topic, 2)
    produce(kafka, topic, [record._replace(partition=1) for record in numbered(4, 1)])
    end = wait_until(lambda: (o := driver.latest_offset(start, None)) != start and o, within=20)
    assert end[topic]["1"] == 4
    assert end["@group"]["from"][topic]["1"] == 0


def test_a_topic_that_does_not_exist_yet_is_a_warning_and_read_from_its_first_record_when_it_comes(
    kafka, group, driver_of, caplog
):
    topic = name("later")
    driver = driver_of(kafka, topic, group, startingOffsets="latest", **QUICK)
    start = driver.initial_offset()
    assert driver.latest_offset(start, None) == start
    assert f"the query goes on without them until they exist: {topic}" in caplog.text
    kafka.create_topic(topic)
    produce(kafka, topic, numbered(4, 1))
    end = wait_until(lambda: (o := driver.latest_offset(start, None)) != start and o, within=20)
    assert end["@group"]["from"] == {topic: {"0": 0}}


def test_a_join_outlasts_a_member_that_is_more_patient_than_this_one(kafka, group, driver_of, caplog):
    topic = topic_with(kafka, numbered(3, 3))
    busy = driver_of(kafka, topic, group)
    end = busy.latest_offset(busy.initial_offset(), None)  # a batch that keeps the group waiting
    hasty = {"kafka.max.poll.interval.ms": 1000, "kafka.request.timeout.ms": 2000}
    other = driver_of(kafka, topic, group, **hasty)
    joining = threading.Thread(target=other.latest_offset, args=(other.initial_offset(), None))
    joining.start()
    wait_until(lambda: "still waiting for other members" in caplog.text, within=30)
    assert busy.latest_offset(end, None) == end
    joining.join(30)
    wait_until(lambda: len(other._session.member.generation.assignment) in (1, 2), within=30)


def test_two_drivers_share_a_group_and_hand_over_without_gap_or_repeat(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(40, 4), partitions=4)
    from_group = {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}
    one, two = driver_of(kafka, topic, group, **from_group), driver_of(kafka, topic, group, **from_group)
    seen = {0: [], 1: []}
    done = threading.Event()

    def run(number, driver):
        offset = driver.initial_offset()
        while not done.is_set():
            end = driver.latest_offset(offset, None)
            if end != offset:
                seen[number] += [r for task in driver.plan(offset, end) for r in task]
                offset = end

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate((one, two))]
    threads[0].start()
    wait_until(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(4)}, within=20)
    threads[1].start()
    wait_until(lambda: len(members(kafka, group)) == 2, within=20)
    produce(kafka, topic, numbered(40, 4))
    wait_until(lambda: committed(kafka, group) == {(topic, p): 20 for p in range(4)}, within=20)
    done.set()
    for thread in threads:
        thread.join()
    ranges = sorted(seen[0] + seen[1])
    for partition in range(4):
        mine = [r for r in ranges if r.tp.partition == partition]
        assert [r.start for r in mine] == [0, *[r.end for r in mine[:-1]]]
        assert mine[-1].end == 20
    assert {r.tp.partition for r in seen[1]} == {2, 3} or {r.tp.partition for r in seen[1]} == {0, 1}


def test_offsets_reset_while_stopped_are_taken(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(20, 1), partitions=1)
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), None)
    assert driver.latest_offset(end, None) == end
    driver.stop()
    commit_for(kafka, group, {(topic, 0): 5})
    again = driver_of(kafka, topic, group)
    following = again.latest_offset(end, None)
    assert following["@group"]["from"] == {topic: {"0": 5}}
    assert following[topic] == {"0": 20}


def test_losing_membership_before_the_first_batch_loses_no_record(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    driver = driver_of(kafka, topic, group, startingOffsets="latest")
    start = driver.initial_offset()
    assert driver.latest_offset(start, None) == start
    throw_out(kafka, group)
    produce(kafka, topic, numbered(4, 1))
    end = wait_until(lambda: (o := driver.latest_offset(start, None)) != start and o, within=30)
    assert end["@group"]["from"] == {topic: {"0": 3}}
    assert end[topic] == {"0": 7}


def test_stopping_and_starting_again_twenty_times_loses_and_repeats_nothing(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(60, 3))
    offset, ranges = None, []
    for _ in range(20):
        driver = driver_of(kafka, topic, group)
        offset = offset or driver.initial_offset()
        end = driver.latest_offset(offset, 3)
        ranges += [r for task in driver.plan(offset, end) for r in task]
        offset = end
        assert driver.latest_offset(end, 3) != end or committed(kafka, group) == {(topic, p): 20 for p in range(3)}
        driver.stop()
        assert members(kafka, group) == []
    for p in range(3):
        assert [(r.start, r.end) for r in ranges if r.tp.partition == p] == [(n, n + 1) for n in range(20)]


def test_after_it_was_stopped_a_driver_does_nothing_any_more(kafka, group, driver_of):
    driver = driver_of(kafka, topic_with(kafka, numbered(3, 1)), group)
    end = driver.latest_offset(driver.initial_offset(), None)
    driver.stop()
    driver.stop()
    driver.commit(end)
    with pytest.raises(MembershipError, match="was stopped and has left its group"):
        driver.latest_offset(end, None)
    assert members(kafka, group) == []
    assert committed(kafka, group) == {}


def test_calls_from_several_threads_do_not_meet(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(300, 3))
    driver = driver_of(kafka, topic, group)
    offset = driver.initial_offset()
    done, failures = threading.Event(), []

    def interfere():
        try:
            while not done.is_set():
                driver.commit(offset)
                driver.report_latest_offset()
        except Exception as error:  # noqa: BLE001 - reported below
            failures.append(error)

    threads = [threading.Thread(target=interfere) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        offset = driver.latest_offset(offset, 15)
    assert driver.latest_offset(offset, 15) == offset
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert committed(kafka, group) == {(topic, p): 100 for p in range(3)}


@pytest.mark.soak
def test_the_progress_tells_the_numbers_that_kafkas_tool_tells(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(30, 3))
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), 6)
    driver.latest_offset(end, 6)
    shown = driver.report_latest_offset()
    rows = kafka.describe_group(group)
    assert {str(row.partition): row.log_end_offset for row in rows} == shown[topic]
    assert {str(row.partition): row.current_offset for row in rows} == shown["@group"]["committed"][topic]
    assert sum(row.lag for row in rows) == shown["@group"]["lag"] == 24
    assert {row.consumer_id for row in rows} == {shown["@group"]["member"]}
