"""A member leaves while its coordinator goes: no other member waits for its session to time out."""

import re
import time


def test_a_member_leaves_at_the_coordinator_that_the_group_has_by_then(broker, client):
    broker.move_coordinator()
    client.leave()
    assert broker.member_id == ""


def test_a_member_leaves_although_its_coordinator_has_died(broker, client):
    broker.move_coordinator()
    broker._nodes[0].stop()
    client.leave()
    assert broker.member_id == ""


def test_a_member_leaves_although_it_has_just_heard_that_its_coordinator_is_none(broker, client):
    broker.move_coordinator()
    client.heartbeat()
    assert not client.knows_coordinator()
    client.leave()
    assert broker.member_id == ""


def test_who_leaves_when_no_broker_can_be_reached_is_not_held_up(broker, client_of, caplog):
    client = client_of(**{"kafka.request.timeout.ms": "120000", "kafka.default.api.timeout.ms": "120000"})
    client.join()
    broker.go_away()
    began = time.monotonic()
    client.leave()
    assert time.monotonic() - began < 60
    reason = r"no broker can be reached: (node \d advertises )?127\.0\.0\.1:"
    assert re.search(f"could not leave, the session will time out: {reason}", caplog.text)
