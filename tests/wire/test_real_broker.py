"""The cells that a real broker can be made to answer, on one: the scripted coordinator is not believed by itself."""

import contextlib
import functools
import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import KafkaConsumer
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.admin._groups import MemberToRemove
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import MemberState
from support import commit_for, committed, members, name, new_client, numbered, options, throw_out, topic_with

from spark_kafka_group.assignors import resolve
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CommitTimeoutError,
    FencedError,
    MembershipError,
    MembershipLostError,
)
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import coordinator_responses
from spark_kafka_group.wire.group.non_member import NonMemberCommitter

LARGEST_GROUP = 2
NOBODY_IS_ROOT = {
    "group.max.size": str(LARGEST_GROUP),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def kafka():
    """Instead of the one that all tests share, a broker with small groups and ACLs."""
    with KafkaCluster(properties=NOBODY_IS_ROOT) as kafka:
        yield kafka


@pytest.fixture
def client_of():
    """Makes clients of a group that have not joined yet; in the end those that joined leave."""
    made = []

    def make(*args, **more):
        made.append(new_client(*args, **more))
        return made[-1]

    yield make
    for client in made:
        client.leave()
        client.close()


@contextlib.contextmanager
def denied(kafka, operation, kind, resource):
    """Deny one operation on a resource; all others are allowed by name, or they would be denied with it."""

    def acl(what, permission):
        return ACL("User:ANONYMOUS", "*", what, permission, ResourcePattern(kind, resource))

    acls = [acl(ACLOperation.ALL, ACLPermissionType.ALLOW), acl(operation, ACLPermissionType.DENY)]
    kafka.admin.create_acls(acls)
    try:
        yield
    finally:
        kafka.admin.delete_acls(acls)


def commit(client, tps, offset=1, note="note"):
    client.commit(dict.fromkeys(tps, offset), note, client.current().id)


def error_of(call, *errors):
    """The text of `call`'s error if it is one of `errors`; None without one."""
    try:
        call()
    except errors as error:
        return str(error)
    return None


UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def test_a_new_dynamic_member_is_asked_for_the_id_it_was_given(kafka, topic, group, client_of, caplog):
    caplog.set_level(logging.INFO, "kafka.coordinator")
    joined = client_of(kafka, topic, group, **{"kafka.client.id": "invoices"}).join()
    assert f"Received member id {joined.member_id} for group {group}" in caplog.text
    assert joined.id == 1
    assert re.fullmatch(f"invoices-driver-{UUID}", joined.member_id)
    assert [member["member_id"] for member in members(kafka, group)] == [joined.member_id]


def test_a_static_member_has_an_id_that_begins_with_its_instance_id(kafka, topic, group, client_of):
    joined = client_of(kafka, topic, group, "billing-1", **{"kafka.client.id": "invoices"}).join()
    assert re.fullmatch(f"billing-1-{UUID}", joined.member_id)
    (member,) = members(kafka, group)
    assert (member["member_id"], member["client_id"]) == (joined.member_id, "invoices-driver")


def test_a_session_timeout_the_broker_does_not_allow_is_said_with_its_bounds(kafka, topic, group, client_of):
    more = {"kafka.session.timeout.ms": 500, "kafka.heartbeat.interval.ms": 100}
    with pytest.raises(
        MembershipError,
        match=rf"joining group {group}: INVALID_SESSION_TIMEOUT: kafka.session.timeout.ms \(500\) is outside the "
        rf"broker's group.min.session.timeout.ms and group.max.session.timeout.ms: choose one between 1000 and 1800000",
    ):
        client_of(kafka, topic, group, **more).join()


def test_a_group_without_a_strategy_in_common_is_said_with_ours(kafka, topic, group, client_of):
    other = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
    )
    try:
        other.subscribe([topic])
        wait_until(lambda: other.poll(1000) or other.assignment(), within=30)
        client = client_of(kafka, topic, group, strategies=resolve(("range", "sticky")))
        with pytest.raises(MembershipError, match=r"INCONSISTENT_GROUP_PROTOCOL: .*strategy names \(range, sticky\)"):
            client.join()
    finally:
        other.close()


def test_a_commit_whose_note_is_too_long_says_which_setting_limits_it(kafka, topic, group, client_of):
    client = client_of(kafka, topic, group)
    owned = client.join().assignment
    with pytest.raises(CommitError, match=rf"OFFSET_METADATA_TOO_LARGE for {topic}-0 .*offset.metadata.max.bytes"):
        commit(client, owned, note="x" * 5000)
    commit(client, owned)
    assert committed(kafka, group) == {(topic, p): 1 for p in range(3)}


def test_a_commit_for_a_deleted_topic_names_it_and_what_was_committed(kafka, topic, group, client_of):
    short = {"kafka.default.api.timeout.ms": 1000}
    gone = kafka.create_topic(name("gone"))
    client = client_of(kafka, f"{topic},{gone}", group, **short)
    owned = client.join().assignment
    kafka.delete_topic(gone)
    with pytest.raises(CommitError, match=rf"last answer: UNKNOWN_TOPIC_OR_PARTITION for {gone}-0 \({topic}-0 .* comm"):
        commit(client, owned)
    assert committed(kafka, group) == {(topic, p): 1 for p in range(3)}


def test_a_commit_for_a_deleted_topic_does_not_wait_as_long_as_a_call_may_take(kafka, group, client_of, monkeypatch):
    monkeypatch.setattr(coordinator_responses, "UNKNOWN_FOR_S", 0.5)
    gone = kafka.create_topic(name("gone"))
    client = client_of(kafka, gone, group, **{"kafka.default.api.timeout.ms": 600_000})
    owned = client.join().assignment
    kafka.delete_topic(gone)
    with pytest.raises(CommitTimeoutError, match=f"group {group}: UNKNOWN_TOPIC_OR_PARTITION for {gone}-0") as raised:
        commit(client, owned)
    assert raised.value.answer == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_static_member_that_is_replaced_is_fenced_whatever_it_asks(kafka, topic, group, client_of):
    quick = {"kafka.heartbeat.interval.ms": 100}
    beating, committing, joining = (client_of(kafka, topic, group, "one", **quick) for _ in range(3))
    beating.join()
    committing.join()
    text = wait_until(lambda: error_of(beating.check_not_fenced, FencedError), within=30)
    assert text.startswith(f"heartbeats of group {group}: FENCED_INSTANCE_ID: another process has joined")
    owned = committing.current().assignment
    joining.join()
    with pytest.raises(FencedError, match=rf"committing .*{group}: FENCED_INSTANCE_ID for {topic}-0 .*\(one\)"):
        commit(committing, owned)
    client_of(kafka, topic, group, "one").join()
    joining.request_rejoin()
    with pytest.raises(FencedError, match=f"joining group {group}: FENCED_INSTANCE_ID: another process has joined"):
        joining.join()


SHORT = {"kafka.session.timeout.ms": 6000, "kafka.heartbeat.interval.ms": 100}


@pytest.fixture
def held_up(kafka, topic, group, client_of):
    """A member that a rebalance waits for; called, it joins."""
    member = client_of(kafka, topic, group, **SHORT)
    member.join()

    def joins():
        if member.rejoin_needed():
            member.join()

    return joins


def joins_meanwhile(kafka, group, running, live, later, as_new=None):
    """Has `live` join for the first time, or `as_new`, and `later`, under its instance id, whose request reaches the
    broker last."""
    joined = running.submit(as_new or live.join_first, live.join)
    wait_until(lambda: len(members(kafka, group)) == LARGEST_GROUP, within=30)
    (before,) = [m["member_id"] for m in members(kafka, group) if m["group_instance_id"] == "one"]

    def took_its_place():
        later.join_within(100)
        return before not in [m["member_id"] for m in members(kafka, group)]

    wait_until(took_its_place, within=30)
    return joined


def test_a_query_outlives_the_request_of_a_killed_process_that_comes_late(
    kafka, topic, group, client_of, held_up, caplog
):
    live, killed = client_of(kafka, topic, group, "one", **SHORT), new_client(kafka, topic, group, "one", **SHORT)
    with ThreadPoolExecutor(1) as running:
        joined = joins_meanwhile(kafka, group, running, live, killed)
        killed.close()  # without LeaveGroup
        wait_until(lambda: held_up() or joined.done(), within=60)
    assert joined.result().assignment
    assert joined.result().member_id in [m["member_id"] for m in members(kafka, group)]
    assert f"group {group}: another process has joined as one in the same moment" in caplog.text


@pytest.mark.parametrize("known", ["", pytest.param("the id that it had", marks=pytest.mark.soak)])
def test_a_query_that_joins_anew_after_it_has_lost_its_membership_outlives_a_late_request_of_a_killed_process(
    kafka, topic, group, client_of, held_up, known, caplog
):
    live, late = client_of(kafka, topic, group, "one", **SHORT), new_client(kafka, topic, group, "one", **SHORT)
    with ThreadPoolExecutor(1) as running:
        first = running.submit(live.join_first, live.join)
        wait_until(lambda: held_up() or first.done(), within=30)
        throw_out(kafka, group, "one")
        wait_until(lambda: live.lost() and len(members(kafka, group)) == 1, within=30)
        wait_until(lambda: held_up() or kafka.group_state(group)[0] == "Stable", within=30)
        joined = joins_meanwhile(kafka, group, running, live, late, functools.partial(live.join_as, known))
        late.close()  # without LeaveGroup
        wait_until(lambda: held_up() or joined.done(), within=60)
    assert joined.result().member_id in [m["member_id"] for m in members(kafka, group)]
    assert f"group {group}: another process has joined as one in the same moment" in caplog.text


@pytest.mark.soak
def test_a_member_that_returns_outlives_a_late_request_of_a_killed_process_between_its_two_joins(
    kafka, topic, group, client_of
):
    before, killed = (new_client(kafka, topic, group, "one", **SHORT) for _ in range(2))
    live = client_of(kafka, topic, group, "one", **SHORT)
    before.join()
    before.close()  # without LeaveGroup, so the coordinator names it as the leader of the group
    joins = []

    def join():
        joins.append(live)
        if len(joins) == 2:
            killed.join()
            killed.close()
        return live.join()

    joined = live.join_first(join)
    assert len(joins) == 3
    assert joined.assignment
    assert [m["member_id"] for m in members(kafka, group)] == [joined.member_id]


def test_a_query_is_fenced_in_its_first_join_by_a_process_that_lives(kafka, topic, group, client_of, held_up):
    live, later = (client_of(kafka, topic, group, "one", **SHORT) for _ in range(2))
    with ThreadPoolExecutor(1) as running:
        joined = joins_meanwhile(kafka, group, running, live, later)
        wait_until(lambda: held_up() or later.join_within(100), within=30)
        with pytest.raises(FencedError, match=f"joining group {group}: FENCED_INSTANCE_ID: another process has joined"):
            joined.result()
    assert not later.rejoin_needed()
    assert later.current().assignment


@pytest.mark.soak
def test_a_fenced_query_does_not_fence_the_other_process_because_the_broker_does_not_say_whether_that_lives(
    kafka, topic, group, client_of, held_up
):
    live, later = (client_of(kafka, topic, group, "one", **SHORT) for _ in range(2))
    with ThreadPoolExecutor(1) as running:
        joined = joins_meanwhile(kafka, group, running, live, later)
        with denied(kafka, ACLOperation.DESCRIBE, ResourceType.GROUP, group):
            wait_until(lambda: held_up() or later.join_within(100), within=30)
            with pytest.raises(BrokerTimeoutError, match=f"looking up group {group}: no answer within 8 s"):
                joined.result()
        with pytest.raises(FencedError):
            live.join_as("", live.join)
    assert not later.rejoin_needed()
    assert later.current().assignment


def test_a_static_member_that_joins_as_new_leads_also_where_an_id_in_between_was_not_heard_of(
    kafka, topic, group, client_of
):
    client, between = (client_of(kafka, topic, group, "one") for _ in range(2))
    before = client.join()
    between.join()  # its id stands for one that was given in an answer that never came
    client._coordinator.reset_generation()
    joined = client.join()
    assert joined.leader
    assert joined.id > before.id
    assert joined.unbroken == frozenset()
    assert not client.rejoin_needed()


def test_a_member_that_was_removed_may_not_commit_and_joins_as_new(kafka, topic, group, client_of):
    client = client_of(kafka, topic, group)
    before = client.join()
    kafka.admin.remove_group_members(group, [MemberToRemove(member_id=before.member_id)])
    with pytest.raises(MembershipLostError, match=f"committing offsets of group {group}: UNKNOWN_MEMBER_ID for "):
        commit(client, before.assignment)
    assert client.lost()
    assert client.join().member_id != before.member_id
    assert committed(kafka, group) == {}


def test_a_commit_under_an_old_generation_is_refused_and_the_member_stays_who_it_is(kafka, topic, group, client_of):
    client = client_of(kafka, topic, group)
    before, inside = client.join(), client._coordinator
    old = inside._generation
    client.request_rejoin()
    client.join()
    inside._generation = old  # as if it had not heard of the new one
    with pytest.raises(MembershipLostError, match=f"committing offsets of group {group}: ILLEGAL_GENERATION for "):
        client.commit(dict.fromkeys(before.assignment, 1), "note", before.id)
    assert client.lost()
    assert client.join().member_id == before.member_id
    assert committed(kafka, group) == {}


class Holding:
    """The range strategy, when `go` is set."""

    name = "range"

    def __init__(self):
        self.go = threading.Event()
        (self._range,) = resolve(("range",))

    def assign(self, members, partitions):
        assert self.go.wait(20)
        return self._range.assign(members, partitions)


def test_a_commit_while_the_leader_assigns_is_refused_and_no_member_loses_membership(kafka, topic, group, client_of):
    quick = {"kafka.heartbeat.interval.ms": 100}
    holding = Holding()
    holding.go.set()
    leader, follower = client_of(kafka, topic, group, strategies=[holding], **quick), client_of(kafka, topic, group)
    leader.join()
    holding.go.clear()
    threads = [threading.Thread(target=follower.join)]
    threads[0].start()
    try:
        wait_until(leader.rejoin_needed, within=30)
        threads.append(threading.Thread(target=leader.join))
        threads[1].start()
        generation = wait_until(lambda: (g := follower._coordinator._generation).generation_id == 2 and g, within=30)
        # The follower's own connection waits for its SyncGroup, and kafka-python sends no commit before that. So does
        # the same member over another one.
        other = client_of(kafka, topic, group)
        other._coordinator._generation = generation
        other._coordinator.state = MemberState.STABLE
        with pytest.raises(MembershipLostError, match=f"committing .* {group}: REBALANCE_IN_PROGRESS for {topic}-0: "):
            other.commit({TopicPartition(topic, 0): 1}, "note", 2)
        assert other.rejoin_needed()
        assert not other.lost()
        other._coordinator.reset_generation()
    finally:
        holding.go.set()
        for thread in threads:
            thread.join()
    assert follower.current().id == leader.current().id == 2
    commit(follower, follower.current().assignment)


def test_a_group_that_is_full_says_so(kafka, topic, group, client_of):
    quick = {"kafka.heartbeat.interval.ms": 100}
    first, *others = (client_of(kafka, topic, group, **quick) for _ in range(LARGEST_GROUP + 1))
    first.join()
    joining = [threading.Thread(target=other.join) for other in others[:-1]]
    for thread in joining:
        thread.start()
    wait_until(first.rejoin_needed, within=30)
    first.join()
    for thread in joining:
        thread.join()
    with pytest.raises(MembershipError, match=f"joining group {group}: GROUP_MAX_SIZE_REACHED: .*group.max.size"):
        others[-1].join()
    assert len(members(kafka, group)) == LARGEST_GROUP


def test_a_group_that_may_not_be_read_stops_heartbeats_commits_and_joins(kafka, topic, group, client_of):
    client = client_of(kafka, topic, group, **{"kafka.heartbeat.interval.ms": 100})
    owned = client.join().assignment
    why = f"GROUP_AUTHORIZATION_FAILED.*: this user needs the ACL operation Read on Group {group}"
    with denied(kafka, ACLOperation.READ, ResourceType.GROUP, group):
        wait_until(lambda: error_of(client.check_not_fenced, MembershipError), within=30)
        with pytest.raises(MembershipError, match=f"heartbeats of group {group}: {why}"):
            client.check_not_fenced()
        with pytest.raises(CommitError, match=f"committing offsets of group {group}: {why}"):
            commit(client, owned)
        with pytest.raises(MembershipError, match=f"joining group {group}: {why}"):
            client_of(kafka, topic, group).join()
        assert client.committed(owned) == {}  # that takes no more than Describe
    wait_until(lambda: error_of(client.check_not_fenced, MembershipError) is None, within=30)
    commit(client, owned)


def test_a_group_that_may_not_be_described_cannot_be_found(kafka, topic, group, client_of):
    with denied(kafka, ACLOperation.DESCRIBE, ResourceType.GROUP, group):
        # One that has joined before the broker heard of it would look nothing up any more.
        why = wait_until(lambda: error_of(client_of(kafka, topic, group).join, MembershipError), within=20)
        assert why.startswith(f"looking up the coordinator of group {group}: GROUP_AUTHORIZATION_FAILED: ")
        assert "Describe (or Read, which includes it) on Group" in why


def test_a_topic_that_may_not_be_read_cannot_be_committed_and_the_others_are(kafka, group):
    one, other = (topic_with(kafka, numbered(3, 1), partitions=1) for _ in range(2))
    driver = StreamDriver(Options.parse(options(kafka, f"{one},{other}", group)))
    try:
        end = driver.latest_offset(driver.initial_offset(), None)
        with denied(kafka, ACLOperation.READ, ResourceType.TOPIC, other):
            wait_until(lambda: is_denied(kafka, other), within=30)
            with pytest.raises(CommitError) as raised:
                driver.latest_offset(end, None)
    finally:
        driver.stop()
    text = str(raised.value)
    assert f"TOPIC_AUTHORIZATION_FAILED for {other}-0 ({one}-0 committed): " in text
    assert f"Read on Topic {other}" in text
    assert f"{other}-0[0,3)" in text.partition("The rows of ")[2].partition(" are in the sink")[0]
    assert committed(kafka, group) == {(one, 0): 3}


def is_denied(kafka, topic):
    """Whether the broker has heard of the ACL: the controller takes it first."""
    return error_of(lambda: commit_for(kafka, name("try"), {(topic, 0): 0}), KafkaError) is not None


def test_a_topic_that_may_not_be_described_has_no_committed_offsets_to_show(kafka, topic, group, client_of):
    client = client_of(kafka, topic, group)
    owned = client.join().assignment
    with denied(kafka, ACLOperation.DESCRIBE, ResourceType.TOPIC, topic):
        why = wait_until(lambda: error_of(lambda: client.committed(owned), BrokerError), within=30)
    assert why.startswith(f"looking up committed offsets of group {group}: TOPIC_AUTHORIZATION_FAILED for {topic}-0 ")
    assert f"Describe (or Read, which includes it) on Topic {topic}" in why


def node_id(coordinator_id):
    """The broker's, from kafka-python's id of a connection to a coordinator."""
    return int(str(coordinator_id).removeprefix("coordinator-"))


@pytest.mark.soak
def test_a_broker_that_takes_a_group_over_has_its_offsets_from_the_first_answer_on(kafka3, group, client_of):
    topic = topic_with(kafka3, [], partitions=1)
    commit_for(kafka3, group, {(topic, 0): 4})
    client = client_of(kafka3, topic, group)
    found = client.committed([TopicPartition(topic, 0)])
    before = client._coordinator.coordinator_id
    node = kafka3.node(node_id(before) - 1)

    def listeners():
        with NonMemberCommitter(Options.parse(options(kafka3, topic)), group) as listener:
            return listener.commit(found.keys(), lambda _: {}, "note", 1, "one").before

    node.kill()
    try:
        with ThreadPoolExecutor(1) as running:
            first, over_s = running.submit(listeners), None
            while over_s is None or time.monotonic() < over_s:
                assert client.committed(found.keys()) == found
                if over_s is None and client._coordinator.coordinator_id != before:
                    over_s = time.monotonic() + 1
            assert first.result() == found
    finally:
        node.start()
        kafka3.wait_until_ready()


@pytest.mark.soak
def test_a_coordinator_that_dies_takes_neither_member_nor_generation_with_it(kafka3, group, client_of):
    topic = kafka3.create_topic(name("topic"), partitions=3)
    client = client_of(kafka3, topic, group, **{"kafka.request.timeout.ms": 60_000})
    before, inside = client.join(), client._coordinator
    coordinator = node_id(inside.coordinator_id)
    inside.coordinator_id = coordinator % 3 + 1  # one that answers NOT_COORDINATOR
    commit(client, before.assignment, 1)
    assert inside.coordinator_id == f"coordinator-{coordinator}"
    kafka3.node(coordinator - 1).kill()
    try:
        commit(client, before.assignment, 2)
        assert inside.coordinator_id != f"coordinator-{coordinator}"
        assert {tp: c.offset for tp, c in client.committed(before.assignment).items()} == dict.fromkeys(
            before.assignment, 2
        )
        client.check_not_fenced()
        assert not client.rejoin_needed()
        assert client.current() == before
    finally:
        kafka3.node(coordinator - 1).start()
        kafka3.wait_until_ready()
    ((member),) = members(kafka3, group)
    assert member["member_id"] == before.member_id
