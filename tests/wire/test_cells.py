"""Every cell of the table, on a scripted coordinator: an error as answer, and the client's reaction."""

import pytest
from kafka.errors import KafkaConnectionError
from support.scripted import FOREVER

from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    FencedError,
    JoinTimeoutError,
    MembershipError,
    MembershipLostError,
)
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.reactions import ADVICE, OF_A_MEMBER, REACTIONS, Reaction, Request

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)
FIND, JOIN, SYNC = Request.FIND_COORDINATOR, Request.JOIN, Request.SYNC
HEARTBEAT, COMMIT, OFFSET_FETCH = Request.HEARTBEAT, Request.COMMIT, Request.OFFSET_FETCH


def cells(*reactions, of, but=None):
    """Parametrizes a test with the cells of these reactions in the columns `of`, `but` one error."""
    found = [(r, e) for r in of for e, row in REACTIONS.items() if row[r] in reactions and e != but]
    return pytest.mark.parametrize(("request_", "error"), found, ids=[f"{r.value}-{e}" for r, e in found])


def ask(client, request):
    """Have a member without another join send this request; returns the result."""
    if request is FIND or request is COMMIT:
        return client.commit({ORDERS: 5, BILLS: 6}, "note", generation=1)
    if request is OFFSET_FETCH:
        return client.committed([ORDERS, BILLS])
    client.request_rejoin()
    return client.join()


def script(broker, request, error, times=1):
    broker.answer(request, error, times)
    if request is FIND:
        broker.answer(COMMIT, "NOT_COORDINATOR")  # makes the next commit look the coordinator up


def joins(broker):
    """Member ids that joined."""
    return [message.member_id for message in broker.received(JOIN)]


@cells(Reaction.RETRY, of=(FIND, COMMIT, OFFSET_FETCH))
def test_a_request_that_may_pass_is_sent_again(broker, client, request_, error):
    before = client.current()
    script(broker, request_, error, times=2)
    ask(client, request_)
    assert len(broker.received(request_)) == {FIND: 3, COMMIT: 3, OFFSET_FETCH: 3}[request_]
    assert joins(broker) == []
    assert client.current() == before
    if request_ is not FIND:
        assert broker.received(FIND) == []


@cells(Reaction.RETRY, Reaction.FIND_COORDINATOR, of=(JOIN, SYNC))
def test_a_join_that_may_pass_goes_on_as_the_same_member(broker, client, request_, error):
    before = client.current()
    script(broker, request_, error, times=2)
    joined = ask(client, request_)
    assert joins(broker) == [before.member_id] * 3
    assert joined.member_id == before.member_id
    assert joined.assignment == before.assignment
    assert len(broker.received(FIND)) == (2 if REACTIONS[error][request_] is Reaction.FIND_COORDINATOR else 0)


@cells(Reaction.FIND_COORDINATOR, of=(COMMIT, OFFSET_FETCH))
def test_the_coordinator_is_looked_up_and_asked_again(broker, client, request_, error):
    before = client.current()
    script(broker, request_, error)
    ask(client, request_)
    assert [m.name for m in broker.received() if m.name != "HeartbeatRequest"] == [
        f"{request_.value}Request",
        "FindCoordinatorRequest",
        f"{request_.value}Request",
    ]
    assert client.current() == before


@cells(Reaction.RETRY, Reaction.FIND_COORDINATOR, of=(HEARTBEAT,))
def test_heartbeats_go_on_and_nothing_is_rejoined(broker, beating, request_, error):
    before = beating.current()
    script(broker, request_, error, times=2)
    wait_until(lambda: len(broker.received(HEARTBEAT)) >= 4, within=30)
    beating.check_not_fenced()
    assert not beating.rejoin_needed()
    assert beating.current() == before
    assert joins(broker) == []
    assert len(broker.received(FIND)) == (2 if REACTIONS[error][request_] is Reaction.FIND_COORDINATOR else 0)


@pytest.mark.parametrize("request_", [COMMIT, OFFSET_FETCH], ids=lambda request: request.value)
def test_a_coordinator_that_moves_keeps_member_and_generation(broker, client, request_):
    before = client.current()
    broker.move_coordinator()
    ask(client, request_)
    assert len(broker.received(FIND)) == 1
    assert joins(broker) == []
    assert client.current() == before
    assert not client.rejoin_needed()


def test_heartbeats_follow_a_coordinator_that_moves(broker, beating):
    before = beating.current()
    broker.move_coordinator()
    wait_until(lambda: len(broker.received(FIND)) == 1 and len(broker.received(HEARTBEAT)) >= 3, within=30)
    assert joins(broker) == []
    assert beating.current() == before
    assert not beating.rejoin_needed()


@cells(Reaction.RETRY, Reaction.FIND_COORDINATOR, of=(COMMIT, OFFSET_FETCH))
def test_retrying_ends_with_kafkas_word_for_it(broker, client_of, request_, error):
    client = client_of(**{"kafka.default.api.timeout.ms": "600"})
    client.join()
    script(broker, request_, error, FOREVER)
    with pytest.raises(CommitError if request_ is COMMIT else BrokerTimeoutError) as raised:
        ask(client, request_)
    assert f"kafka.default.api.timeout.ms is over, last answer: {error}" in str(raised.value)
    assert ADVICE[error].partition("{")[0] in str(raised.value)
    assert len(broker.received(request_)) > 2


@cells(Reaction.RETRY, of=(FIND,))
def test_looking_for_a_coordinator_ends_with_kafkas_word_for_it(broker, client_of, request_, error):
    client = client_of(**{"kafka.default.api.timeout.ms": "600"})
    broker.answer(FIND, error, FOREVER)
    with pytest.raises(BrokerTimeoutError, match=f"of group billing: .* last answer: {error}: ") as raised:
        client.join()
    assert ADVICE[error] in str(raised.value)


def test_joining_ends_with_kafkas_word_for_it(broker, client_of, monkeypatch):
    client = client_of(**{"kafka.max.poll.interval.ms": "1"})
    broker.answer(JOIN, "COORDINATOR_LOAD_IN_PROGRESS", FOREVER)
    assert client.join_within(300) is None
    patient = client.join_within
    monkeypatch.setattr(client, "join_within", lambda timeout_ms: patient(timeout_ms / 10))
    with pytest.raises(JoinTimeoutError, match="within 5001 ms: last answer: COORDINATOR_LOAD_IN_PROGRESS"):
        client.join()


def test_a_lost_connection_makes_a_join_wait_and_no_error(client, monkeypatch):
    def lose(timeout_ms):
        raise KafkaConnectionError("lost")

    client.request_rejoin()
    monkeypatch.setattr(client._coordinator, "ensure_active_group", lose)
    assert client.join_within(150) is None


def test_brokers_that_are_away_for_a_moment_make_a_join_wait_and_no_error(broker, client):
    client.request_rejoin()
    broker.go_away()
    assert [client.join_within(250) for _ in range(8)] == [None] * 8
    broker.come_back()
    assert wait_until(lambda: client.join_within(250), within=30).member_id == "member-1"


@cells(Reaction.REJOIN, of=(JOIN, SYNC), but="MEMBER_ID_REQUIRED")
def test_a_member_whose_join_is_refused_joins_again_as_the_same_member(broker, client, request_, error):
    before = client.current()
    script(broker, request_, error)
    joined = ask(client, request_)
    assert joins(broker) == [before.member_id] * 2
    assert joined.assignment == before.assignment
    assert joined.id == before.id + (1 if request_ is JOIN else 2)  # a SyncGroup refused is a generation missed


def test_a_new_dynamic_member_joins_again_with_the_id_it_is_given(broker, client_of):
    joined = client_of(instance_id=None).join()
    assert joins(broker) == ["", "member-1"]
    assert (joined.member_id, joined.id) == ("member-1", 1)


@cells(Reaction.REJOIN, of=(HEARTBEAT,))
def test_a_heartbeat_that_asks_for_a_join_makes_the_next_one_of_the_same_member(broker, beating, request_, error):
    before = beating.current()
    script(broker, request_, error)
    wait_until(beating.rejoin_needed, within=30)
    assert not beating.lost()
    joined = beating.join()
    assert joins(broker) == [before.member_id]
    assert (joined.id, joined.member_id) == (before.id + 1, before.member_id)


@cells(Reaction.RETAKE, Reaction.JOIN_AS_NEW, of=(JOIN, SYNC))
def test_membership_lost_while_joining_shows_in_the_generation(broker, client, request_, error):
    before = client.current()
    script(broker, request_, error)
    joined = ask(client, request_)
    if REACTIONS[error][request_] is Reaction.RETAKE:
        assert joins(broker) == [before.member_id] * 2
        assert joined.id > before.id + 1
    else:
        assert joins(broker) == [before.member_id, ""]
        assert joined.member_id != before.member_id


@cells(Reaction.RETAKE, Reaction.JOIN_AS_NEW, of=(COMMIT,))
def test_a_commit_that_comes_too_late_is_logged_and_the_next_join_is_one_of_the_right_member(
    broker, client, request_, error
):
    script(broker, request_, error)
    with pytest.raises(MembershipLostError, match=f"committing offsets of group billing: {error} for "):
        ask(client, COMMIT)
    assert broker.committed == {}
    joins_after_loss(broker, client, REACTIONS[error][request_])


@cells(Reaction.RETAKE, Reaction.JOIN_AS_NEW, of=(HEARTBEAT,))
def test_after_a_heartbeat_that_tells_of_the_loss_no_commit_is_sent(broker, beating, request_, error):
    script(broker, request_, error)
    wait_until(beating.lost, within=30)
    with pytest.raises(MembershipLostError, match="generation 1 of group billing is over"):
        ask(beating, COMMIT)
    assert broker.received(COMMIT) == []
    joins_after_loss(broker, beating, REACTIONS[error][request_])


def joins_after_loss(broker, client, reaction):
    assert client.rejoin_needed()
    client.join()
    assert joins(broker) == ["member-1" if reaction is Reaction.RETAKE else ""]


@cells(Reaction.FENCED, of=(JOIN, SYNC, COMMIT))
def test_a_member_that_was_replaced_stops(broker, client, request_, error):
    script(broker, request_, error)
    with pytest.raises(FencedError, match=rf"group billing: {error}.*another process has joined .*\(billing-1\)"):
        ask(client, request_)
    assert len(broker.received(request_)) == 1


@cells(Reaction.FENCED, of=(HEARTBEAT,))
def test_a_member_that_was_replaced_hears_of_it_by_heartbeats(broker, beating, request_, error):
    script(broker, request_, error)

    def fenced():
        try:
            beating.check_not_fenced()
        except FencedError as fence:
            return str(fence)
        return None

    message = wait_until(fenced, within=30)
    assert message.startswith(f"heartbeats of group billing: {error}: another process has joined")
    assert all(
        words in message for words in ("(billing-1)", "the same checkpoint", "Run one query for each checkpoint")
    )
    assert len(broker.received(HEARTBEAT)) == 1


@cells(Reaction.FATAL, of=(JOIN, SYNC))
def test_a_group_that_will_not_have_a_member_says_why(broker, client_of, request_, error):
    client = client_of(**{"kafka.session.timeout.ms": "1000", "kafka.heartbeat.interval.ms": "100"})
    broker.answer(request_, error)
    with pytest.raises(MembershipError) as raised:
        client.join()
    assert type(raised.value) is MembershipError
    assert str(raised.value).startswith(f"joining group billing: {error}: ")
    assert len(broker.received(JOIN)) == 1
    words = {
        "INVALID_SESSION_TIMEOUT": "kafka.session.timeout.ms (1000) is outside the broker's",
        "GROUP_MAX_SIZE_REACHED": "group.max.size",
        "INCONSISTENT_GROUP_PROTOCOL": "kafka.partition.assignment.strategy names (range, sticky)",
        "GROUP_AUTHORIZATION_FAILED": "the ACL operation Read on Group billing",
        "INVALID_GROUP_ID": "kafka.group.id (billing)",
    }
    assert words[error] in str(raised.value)


@cells(Reaction.FATAL, of=(FIND,))
def test_a_coordinator_that_may_not_be_looked_up_stops_whatever_needed_it(broker, client_of, request_, error):
    client = client_of()
    broker.answer(FIND, error)
    message = f"looking up the coordinator of group billing: {error}: .* Describe .* on Group billing"
    with pytest.raises(MembershipError, match=message):
        client.join()
    client.join()
    script(broker, FIND, error)
    with pytest.raises(CommitError, match=f"committing offsets of group billing: {error}: "):
        ask(client, COMMIT)
    broker.answer(OFFSET_FETCH, "NOT_COORDINATOR")
    broker.answer(FIND, error)
    with pytest.raises(BrokerError, match=f"looking up committed offsets of group billing: {error}: "):
        ask(client, OFFSET_FETCH)


@cells(Reaction.FATAL, of=(HEARTBEAT,))
def test_heartbeats_that_are_refused_are_said_at_the_next_trigger_as_long_as_they_are(broker, beating, request_, error):
    script(broker, request_, error, FOREVER)

    def refused():
        try:
            beating.check_not_fenced()
        except MembershipError as refusal:
            return str(refusal)
        return None

    assert wait_until(refused, within=30).startswith(f"heartbeats of group billing: {error}: ")
    assert "billing" in refused().partition(error)[2]
    broker.behave()
    wait_until(lambda: refused() is None, within=30)
    assert not beating.rejoin_needed()


@cells(Reaction.FATAL, of=(COMMIT,))
def test_a_commit_that_is_refused_says_why(broker, client, request_, error):
    script(broker, request_, error)
    with pytest.raises(CommitError) as raised:
        ask(client, COMMIT)
    assert str(raised.value).startswith(f"committing offsets of group billing: {error} for bills-0 orders-0: ")
    assert len(broker.received(COMMIT)) == 1
    words = {
        "GROUP_AUTHORIZATION_FAILED": "the ACL operation Read on Group billing",
        "TOPIC_AUTHORIZATION_FAILED": "the ACL operation Read on Topic bills, orders",
        "OFFSET_METADATA_TOO_LARGE": "offset.metadata.max.bytes",
        "INVALID_COMMIT_OFFSET_SIZE": "max.message.bytes",
        "INVALID_GROUP_ID": "kafka.group.id (billing)",
    }
    assert words[error] in str(raised.value)


def test_a_commit_refused_for_some_partitions_names_them_and_those_it_was_done_for(broker, client):
    broker.answer(COMMIT, {ORDERS: "TOPIC_AUTHORIZATION_FAILED"})
    with pytest.raises(
        CommitError, match=r"TOPIC_AUTHORIZATION_FAILED for orders-0 \(bills-0 committed\): .*Topic ord"
    ):
        ask(client, COMMIT)
    assert broker.committed == {BILLS: (6, "note")}


def test_a_commit_refused_for_several_reasons_says_them_all(broker, client):
    broker.answer(COMMIT, {ORDERS: "TOPIC_AUTHORIZATION_FAILED", BILLS: "OFFSET_METADATA_TOO_LARGE"})
    with pytest.raises(CommitError) as raised:
        ask(client, COMMIT)
    assert "OFFSET_METADATA_TOO_LARGE for bills-0, TOPIC_AUTHORIZATION_FAILED for orders-0: " in str(raised.value)
    assert "offset.metadata.max.bytes" in str(raised.value)
    assert "Read on Topic orders" in str(raised.value)


def test_a_topic_that_is_new_to_the_coordinator_is_committed_as_soon_as_it_knows_it(broker, client):
    broker.answer(COMMIT, {ORDERS: "UNKNOWN_TOPIC_OR_PARTITION"}, times=3)
    ask(client, COMMIT)
    assert broker.committed == {ORDERS: (5, "note"), BILLS: (6, "note")}
    assert len(broker.received(COMMIT)) == 4


@cells(Reaction.FATAL, of=(OFFSET_FETCH,))
def test_committed_offsets_that_may_not_be_read_say_why(broker, client, request_, error):
    scripted = {ORDERS: error} if error == "TOPIC_AUTHORIZATION_FAILED" else error
    script(broker, request_, scripted)
    with pytest.raises(BrokerError) as raised:
        ask(client, OFFSET_FETCH)
    where = " for orders-0: " if scripted != error else ": "
    assert str(raised.value).startswith(f"looking up committed offsets of group billing: {error}{where}")
    assert len(broker.received(OFFSET_FETCH)) == 1


PASSING = {"NOT_COORDINATOR", "REQUEST_TIMED_OUT", "UNKNOWN_TOPIC_OR_PARTITION", "UNSTABLE_OFFSET_COMMIT"}
"""Errors that Kafka calls retriable, for each request."""
UNSENT = [
    (r, e) for r in OF_A_MEMBER if r is not HEARTBEAT for e, row in REACTIONS.items() if row[r] is Reaction.NOT_SENT
]
PASSED = [(r, e) for r, e in UNSENT if e in PASSING] + [(JOIN, "ILLEGAL_GENERATION"), (SYNC, "MEMBER_ID_REQUIRED")]


def each(found):
    return pytest.mark.parametrize(("request_", "error"), found, ids=[f"{r.value}-{e}" for r, e in found])


@each(PASSED)
def test_what_no_broker_answers_is_asked_again_where_it_may_pass(broker, client, request_, error):
    before = client.current()
    broker.committed = {ORDERS: (3, ""), BILLS: (4, "")}
    script(broker, request_, error)
    answer = ask(client, request_)
    assert len(broker.received(request_)) == 2
    if request_ in (JOIN, SYNC):
        assert answer.assignment == before.assignment == client.current().assignment
        assert not client.rejoin_needed()
    elif request_ is OFFSET_FETCH:
        assert {tp: group.offset for tp, group in answer.items()} == {ORDERS: 3, BILLS: 4}
    else:
        assert broker.committed == {ORDERS: (5, "note"), BILLS: (6, "note")}


@each([cell for cell in UNSENT if cell not in PASSED])
def test_what_no_broker_answers_and_may_not_pass_is_an_error_by_its_name_and_only_for_once(
    broker, client, request_, error
):
    before = client.current()
    script(broker, request_, error)
    kind = {JOIN: MembershipError, SYNC: MembershipError, OFFSET_FETCH: BrokerError}.get(request_, CommitError)
    with pytest.raises(kind, match=error):
        ask(client, request_)
    assert len(broker.received(request_)) == 1
    assert broker.committed == {}
    assert client.rejoin_needed() == (request_ in (JOIN, SYNC))
    ask(client, request_)
    assert client.current().assignment == before.assignment


@cells(Reaction.NOT_SENT, of=(HEARTBEAT,))
def test_what_no_broker_answers_a_heartbeat_stops_no_heartbeats(broker, beating, request_, error):
    script(broker, request_, error)
    wait_until(lambda: len(broker.received(HEARTBEAT)) >= 3, within=30)
    beating.check_not_fenced()


def test_every_cell_is_tried():
    """The cells of the table that the tests above leave out."""
    tried = {
        Reaction.RETRY: set(Request),
        Reaction.FIND_COORDINATOR: {JOIN, SYNC, HEARTBEAT, COMMIT, OFFSET_FETCH},
        Reaction.REJOIN: {JOIN, SYNC, HEARTBEAT},
        Reaction.RETAKE: {SYNC, HEARTBEAT, COMMIT},
        Reaction.JOIN_AS_NEW: {JOIN, SYNC, HEARTBEAT, COMMIT},
        Reaction.FENCED: {JOIN, SYNC, HEARTBEAT, COMMIT},
        Reaction.FATAL: set(Request),
    }
    for error, row in REACTIONS.items():
        for request, reaction in row.items():
            assert reaction is Reaction.NOT_SENT or request in tried[reaction], (error, request)
