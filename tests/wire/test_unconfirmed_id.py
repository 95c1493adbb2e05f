"""A member id that a coordinator gave when another broker had the group already: nobody else has joined."""

import pytest
from support.scripted import CODES
from test_cells import JOIN, joins

from spark_kafka_group.errors import FencedError


def loses_the_group(broker, moving=True):
    """SyncGroup tells the coordinator, which has forgotten its member, that another broker has taken the group over."""

    def sync(message):
        del broker._SyncGroup  # the class's own from now on
        if moving:
            broker.move_coordinator()
        return {"error_code": CODES["NOT_COORDINATOR"]}

    broker._SyncGroup = sync


def joins_again(client):
    client.request_rejoin()
    return client.join()


def test_a_member_that_an_outdated_coordinator_took_in_joins_where_the_group_has_moved(broker, client):
    before = client.current()
    for error in ("UNKNOWN_MEMBER_ID", None, "FENCED_INSTANCE_ID"):
        broker.answer(JOIN, error)
    loses_the_group(broker)
    joined = joins_again(client)
    assert joins(broker) == ["member-1", "", "member-2", ""]
    assert joined.member_id == "member-3"
    assert joined.assignment == before.assignment
    assert joined.unbroken == frozenset()


def test_a_member_that_an_outdated_coordinator_took_in_joins_again_once(broker, client):
    for error in ("UNKNOWN_MEMBER_ID", None, "FENCED_INSTANCE_ID", "FENCED_INSTANCE_ID"):
        broker.answer(JOIN, error)
    loses_the_group(broker)
    with pytest.raises(FencedError, match="another process has joined"):
        joins_again(client)
    assert joins(broker) == ["member-1", "", "member-2", ""]


def test_a_first_join_at_an_outdated_coordinator_is_made_where_the_group_has_moved(broker, client_of):
    broker.answer(JOIN, None)
    broker.answer(JOIN, "FENCED_INSTANCE_ID")
    loses_the_group(broker)
    assert client_of().join().member_id == "member-2"
    assert joins(broker) == ["", "member-1", ""]


def test_where_the_group_has_not_moved_another_process_has_joined(broker, client):
    for error in ("UNKNOWN_MEMBER_ID", None, "FENCED_INSTANCE_ID"):
        broker.answer(JOIN, error)
    loses_the_group(broker, moving=False)
    with pytest.raises(FencedError, match="another process has joined"):
        joins_again(client)
    assert joins(broker) == ["member-1", "", "member-2"]


def test_a_member_that_has_been_in_a_generation_is_fenced_wherever_the_group_has_moved(broker, client):
    broker.answer(JOIN, None)
    broker.answer(JOIN, "FENCED_INSTANCE_ID")
    loses_the_group(broker)
    with pytest.raises(FencedError, match="another process has joined"):
        joins_again(client)
    assert joins(broker) == ["member-1", "member-1"]
