"""Whether the process that has joined under an instance id in the same moment lives."""

from types import SimpleNamespace

import pytest

from spark_kafka_group.wire.group import unconfirmed_id
from spark_kafka_group.wire.group.members import CLASSIC, DescribedGroup, DescribedMember

SESSION_S = 10


def group(state, *member_ids):
    members = (DescribedMember(member_id, "one", "client", "host", None) for member_id in member_ids)
    return DescribedGroup(state, CLASSIC, "consumer", "range", tuple(members))


HELD, AWAY, GONE = group("Stable", "a"), None, group("Stable")
REBALANCING = group("PreparingRebalance", "a")


@pytest.fixture
def removed(monkeypatch):
    """Says whether the holder is removed in a group that looks so: each state for this many seconds."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr(unconfirmed_id, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))

    def play(*states, ended_at=1000.0, takes_s=0.0):
        clock.now = 0.0

        def look():
            sleep(takes_s)
            at = 0.0
            for state, seconds in states:
                at += seconds
                if clock.now < at:
                    return state
            return states[-1][0]

        return unconfirmed_id.is_removed("one", look, SESSION_S, lambda: clock.now >= ended_at), clock.now

    return play


def test_a_process_that_the_group_removes_is_dead(removed):
    assert removed((HELD, 8), (GONE, 1)) == (True, 8.0)
    assert removed((GONE, 1)) == (True, 0.0)


def test_a_process_that_stays_in_the_group_for_a_whole_session_lives(removed):
    assert removed((HELD, 100)) == (False, SESSION_S)


def test_a_process_that_joins_meanwhile_lives(removed):
    assert removed((HELD, 3), (group("Stable", "b"), 1)) == (False, 3.0)


def test_sessions_begin_anew_after_a_rebalance_and_where_the_coordinator_was_away(removed):
    assert removed((HELD, 3), (REBALANCING, 60), (HELD, 9), (GONE, 1)) == (True, 72.0)
    assert removed((HELD, 3), (AWAY, 6), (HELD, 9), (GONE, 1)) == (True, 18.0)
    assert removed((AWAY, 100)) == (None, SESSION_S)
    assert removed((HELD, 3), (AWAY, 100)) == (None, SESSION_S)


def test_a_coordinator_that_answers_slowly_does_not_begin_the_wait_anew(removed):
    assert removed((HELD, 100), takes_s=1.0) == (False, 10.5)
    assert removed((HELD, 20), (GONE, 1), takes_s=3.0) == (True, 20.5)


def test_a_query_that_is_stopped_waits_no_longer(removed):
    assert removed((HELD, 100), ended_at=2.0) == (False, 2.0)
