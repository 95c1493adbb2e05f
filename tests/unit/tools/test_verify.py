"""The checker of runs: good runs pass, and one change of a run violates its invariant."""

import dataclasses
import json
import os
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_kafka_group.__main__ import main
from spark_kafka_group.tools import event_logs
from spark_kafka_group.tools.arguments import ToolError
from spark_kafka_group.tools.event_logs import Event, Move, merge, parse, read_run
from spark_kafka_group.tools.invariants import (
    COMMITTED_AS_PLANNED,
    GIVEN_BACK,
    NEVER_BACKWARD,
    ONE_AFTER_ANOTHER,
    ONE_OWNER,
    PLANNED_BY_OWNER,
)
from spark_kafka_group.tools.verify import verify
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

T0, T1, T2 = (TopicPartition("orders", number) for number in range(3))


class Script:
    """Writes events, one millisecond apart."""

    def __init__(self):
        self.events = []

    def _add(self, kind, member, generation, **fields):
        number = len(self.events)
        self.events.append(Event(float(number), kind, "g", member, generation, f"run:{number + 1}", **fields))
        return self

    def assigned(self, member, generation, *tps):
        return self._add("assigned", member, generation, partitions=frozenset(tps))

    def revoked(self, member, generation, *tps):
        return self._add("revoked", member, generation, partitions=frozenset(tps))

    def lost(self, member, generation, *tps):
        return self._add("lost", member, generation, partitions=frozenset(tps))

    def planned(self, member, generation, batch, *ranges, replay=False):
        made = tuple(OffsetRange(*found) for found in ranges)
        return self._add("planned", member, generation, batch=batch, ranges=made, replay=replay)

    def committed(self, member, generation, batch, **offsets):
        made = {TopicPartition("orders", int(name[1:])): offset for name, offset in offsets.items()}
        return self._add("committed", member, generation, batch=batch, offsets=made)

    def moved(self, member, generation, tp, before, to):
        return self._add("moved", member, generation, moves={tp: Move(before, to)})

    def stopped(self, member, generation):
        return self._add("stopped", member, generation)


def good():
    """Two members: b joins, a gives a partition away and goes on; b dies after a commit without an event."""
    script = Script().assigned("a", 1, T0, T1).moved("a", 1, T0, None, 0).moved("a", 1, T1, None, 5)
    script.planned("a", 1, 0, (T0, 0, 10), (T1, 5, 8)).committed("a", 1, 0, t0=10, t1=8)
    script.planned("a", 1, 1, (T0, 10, 20), (T1, 8, 9)).committed("a", 1, 1, t0=20, t1=9)
    script.revoked("a", 1, T1).assigned("a", 2, T0).assigned("b", 2, T1).moved("b", 2, T1, None, 9)
    script.planned("b", 2, 0, (T1, 9, 12)).planned("a", 2, 2, (T0, 20, 30)).committed("b", 2, 0, t1=12)
    script.committed("a", 2, 2, t0=30).planned("b", 2, 1, (T1, 12, 20)).assigned("a", 3, T0, T1)
    return script.planned("a", 3, 3, (T1, 20, 25)).committed("a", 3, 3, t1=25).stopped("a", 3)


def found(events):
    return [violation.invariant for violation in verify(events).violations]


def proof(events):
    (violation,) = verify(events).violations
    return [event.where for event in violation.proof]


def at(script, kind, member, nth=0):
    """Index of the nth event of a kind by a member."""
    return [n for n, e in enumerate(script.events) if (e.kind, e.member) == (kind, member)][nth]


def test_a_good_run_is_summed_up():
    report = verify(good().events)
    assert report.violations == ()
    assert (report.events, report.groups, report.members, report.generations, report.partitions) == (20, 1, 2, 3, 2)
    assert (report.batches, report.records_committed) == (6, 10 + 3 + 10 + 1 + 3 + 10 + 5)
    assert [(doubt.plan.event.member, doubt.plan.range) for doubt in report.in_doubt] == [
        ("b", OffsetRange(T1, 12, 20))
    ]
    assert report.records_in_doubt == 8
    assert verify([]).events == 0


def test_a_group_that_counts_from_one_again_gives_no_partition_to_two_members():
    first = Script().assigned("a", 1, T0).revoked("a", 1, T0).assigned("a", 2, T0).stopped("a", 2)
    second = first.assigned("b", 1, T0).revoked("b", 1, T0).assigned("b", 2, T0)
    assert found(second.events) == []
    assert found(second.assigned("c", 2, T0).events) == [ONE_OWNER]


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_generation_that_a_member_comes_to_again_is_another_one(was_killed):
    script = Script().assigned("a", 3, T0, T1)
    if not was_killed:
        script.stopped("a", 3)
    script.assigned("a", 1, T0, T1).assigned("a", 2, T0).assigned("a", 3, T0)
    assert found(script.assigned("b", 3, T1).events) == []
    assert found(script.assigned("c", 3, T0).events) == [ONE_OWNER]


def test_a_partition_of_two_members_in_one_generation_is_found():
    events = good().events
    events[at(good(), "assigned", "b")] = replace(events[at(good(), "assigned", "b")], partitions=frozenset({T0, T1}))
    assert found(events) == [ONE_OWNER]
    assert proof(events) == ["run:9", "run:10"]


def test_partitions_assigned_by_hand_may_be_anybodys():
    script = Script().assigned("a", -1, T0).assigned("b", -1, T0)
    script.planned("a", -1, 0, (T0, 0, 5)).committed("a", -1, 0, t0=5)
    assert found(script.events) == []


def test_groups_have_generations_of_their_own():
    events = Script().assigned("a", 1, T0).assigned("b", 1, T0).events
    assert found([events[0], replace(events[1], group="another")]) == []


def test_a_range_of_a_partition_that_was_not_assigned_is_found():
    script = good()
    n = at(script, "planned", "b")
    script.events[n] = replace(script.events[n], ranges=(*script.events[n].ranges, OffsetRange(T2, 0, 1)))
    assert found(script.events) == [PLANNED_BY_OWNER]
    assert proof(script.events) == ["run:10", "run:12"]


def test_a_range_under_a_generation_that_assigned_nothing_is_found():
    script = Script().assigned("a", 1, T0).planned("a", 2, 0, (T0, 0, 5))
    assert found(script.events) == [PLANNED_BY_OWNER]
    assert proof(script.events) == ["run:2"]


def test_a_batch_that_is_read_again_may_be_of_partitions_that_others_own_but_not_be_committed_for_them():
    script = Script().assigned("a", 1, T0, T1).planned("a", 1, 0, (T0, 0, 5), (T1, 0, 5)).revoked("a", 1, T1)
    unowned = Script()
    unowned.events = list(script.events)
    script.assigned("b", 2, T1)
    for each in (script, unowned):
        each.assigned("a", 2, T0).planned("a", 2, 0, (T0, 0, 5), (T1, 0, 5), replay=True).committed("a", 2, 0, t0=5)
        assert found(each.events) == []
    assert found(unowned.committed("a", 2, 0, t1=5).events) == []
    assert found(script.committed("a", 2, 0, t1=5).events) == [PLANNED_BY_OWNER]
    assert proof(script.events) == ["run:5", "run:8"]
    assert "committed orders-1=5 in generation 2" in verify(script.events).violations[0].problem


def test_a_commit_that_ends_no_planned_range_is_found():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=6)
    assert found(script.events) == [COMMITTED_AS_PLANNED]
    assert proof(script.events) == ["run:2", "run:3"]


def test_a_commit_under_another_generation_than_the_plan_is_found_unless_it_was_planned_again():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).assigned("a", 2, T0)
    again = Script()
    again.events = list(script.events)
    assert found(script.committed("a", 2, 0, t0=5).events) == [COMMITTED_AS_PLANNED]
    assert found(again.planned("a", 2, 0, (T0, 0, 5), replay=True).committed("a", 2, 0, t0=5).events) == []


def test_another_members_plan_does_not_justify_a_commit():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("b", 1, 0, t0=5)
    assert found(script.events) == [PLANNED_BY_OWNER, COMMITTED_AS_PLANNED]


def test_a_commit_that_goes_backward_is_found():
    script = good().planned("a", 3, 4, (T1, 9, 12)).committed("a", 3, 4, t1=12)
    assert found(script.events) == [NEVER_BACKWARD, ONE_AFTER_ANOTHER]
    last = [violation.proof[-1].where for violation in verify(script.events).violations]
    assert last == ["run:22", "run:22"]


def test_a_move_of_the_committing_member_since_the_last_commit_lets_it_go_backward():
    script = good().moved("a", 3, T1, 25, 9).planned("a", 3, 4, (T1, 9, 12)).committed("a", 3, 4, t1=12)
    assert found(script.events) == []
    script.planned("a", 3, 5, (T1, 9, 11)).committed("a", 3, 5, t1=11)  # it was moved once
    assert found(script.events) == [NEVER_BACKWARD, ONE_AFTER_ANOTHER]


def test_a_move_of_another_member_or_to_another_offset_justifies_nothing():
    script = good().moved("b", 3, T1, 25, 9).planned("a", 3, 4, (T1, 9, 12)).committed("a", 3, 4, t1=12)
    assert found(script.events) == [NEVER_BACKWARD, ONE_AFTER_ANOTHER]
    script = good().moved("a", 3, T1, 25, 15).planned("a", 3, 4, (T1, 9, 12)).committed("a", 3, 4, t1=12)
    assert found(script.events) == [NEVER_BACKWARD, ONE_AFTER_ANOTHER]


def test_a_gap_is_found():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=5)
    script.planned("a", 1, 1, (T0, 6, 9)).committed("a", 1, 1, t0=9)
    assert found(script.events) == [ONE_AFTER_ANOTHER]
    assert proof(script.events) == ["run:3", "run:4", "run:5"]
    assert "[5,6) was left out" in verify(script.events).violations[0].problem


def shared_with_a_neighbour(back_in=3, back_at=9):
    """a reads T0 and T1; T1 is away from generation 2 on, and comes back behind where a had left it."""
    script = Script().assigned("a", 1, T0, T1)
    script.planned("a", 1, 0, (T0, 0, 5), (T1, 0, 5)).committed("a", 1, 0, t0=5, t1=5).revoked("a", 1, T0, T1)
    for generation in range(2, back_in):
        script.assigned("a", generation, T0)
    script.assigned("a", back_in, T0, T1)
    return script.planned("a", back_in, 1, (T1, back_at, 12)).committed("a", back_in, 1, t1=12)


@pytest.mark.parametrize("back_in", [3, 4, 9])
def test_what_a_neighbour_without_events_may_have_read_is_unseen_and_no_violation(back_in):
    script = shared_with_a_neighbour(back_in)
    report = verify(script.events, all_members=False)
    assert (report.violations, [unseen.range for unseen in report.unseen]) == ((), [OffsetRange(T1, 5, 9)])
    assert report.records_unseen == 4
    assert found(script.events) == [ONE_AFTER_ANOTHER]  # all members wrote events


def test_what_a_neighbour_without_events_cannot_have_read_is_left_out():
    script = shared_with_a_neighbour(2)  # a owned T1 in generation 1 and in generation 2
    assert [v.invariant for v in verify(script.events, all_members=False).violations] == [ONE_AFTER_ANOTHER]
    other = shared_with_a_neighbour().assigned("b", 2, T1)  # b wrote events
    other.events.sort(key=lambda event: event.generation)
    assert [v.invariant for v in verify(other.events, all_members=False).violations] == [ONE_AFTER_ANOTHER]


def test_a_neighbour_does_not_set_a_group_back_unseen():
    script = shared_with_a_neighbour(back_at=4)
    assert [v.invariant for v in verify(script.events, all_members=False).violations] == [ONE_AFTER_ANOTHER]


@pytest.mark.parametrize(("partitions", "back_in", "unseen"), [((T0, T1), 3, 0), ((T0,), 3, 1), ((T0, T1), 4, 1)])
def test_a_member_that_leaves_and_returns_as_the_only_one_knows_that_no_other_read_meanwhile(
    partitions, back_in, unseen
):
    script = Script().assigned("a", 1, *partitions).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=5)
    script.stopped("a", 1).assigned("a", back_in, *partitions).planned("a", back_in, 1, (T0, 7, 9))
    script.committed("a", back_in, 1, t0=9).assigned("a", back_in + 1, T0, T1)
    report = verify(script.events, all_members=False)
    assert (len(report.unseen), len(report.violations)) == (unseen, 1 - unseen)


def test_nothing_is_unseen_of_partitions_assigned_by_hand():
    script = Script().assigned("a", -1, T0).planned("a", -1, 0, (T0, 0, 5)).committed("a", -1, 0, t0=5)
    script.planned("a", -1, 1, (T0, 7, 9)).committed("a", -1, 1, t0=9)
    assert [v.invariant for v in verify(script.events, all_members=False).violations] == [ONE_AFTER_ANOTHER]


def test_a_group_that_was_deleted_and_made_again_is_unseen_meanwhile():
    script = Script().assigned("a", 5, T0).planned("a", 5, 0, (T0, 0, 5)).committed("a", 5, 0, t0=5)
    script.assigned("a", 1, T0).planned("a", 1, 1, (T0, 7, 9)).committed("a", 1, 1, t0=9)
    assert [unseen.range for unseen in verify(script.events, all_members=False).unseen] == [OffsetRange(T0, 5, 7)]


def test_an_overlap_is_found():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=5)
    script.planned("a", 1, 1, (T0, 4, 9)).committed("a", 1, 1, t0=9)
    assert found(script.events) == [ONE_AFTER_ANOTHER]
    assert "[4,5) was committed before" in verify(script.events).violations[0].problem


def test_a_move_forward_is_no_gap():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=5)
    script.moved("a", 1, T0, 5, 100).planned("a", 1, 1, (T0, 100, 101)).committed("a", 1, 1, t0=101)
    assert found(script.events) == []


def test_a_gap_is_in_doubt_only_where_planned_ranges_fill_it_exactly():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=5)
    script.planned("a", 1, 1, (T0, 5, 7)).assigned("b", 2, T0).planned("b", 2, 0, (T0, 7, 9)).assigned("c", 3, T0)
    exact = Script()
    exact.events = list(script.events)
    exact.planned("c", 3, 0, (T0, 9, 10)).committed("c", 3, 0, t0=10)
    assert found(exact.events) == []
    assert [doubt.plan.range.end for doubt in verify(exact.events).in_doubt] == [7, 9]
    assert found(script.planned("c", 3, 0, (T0, 8, 10)).committed("c", 3, 0, t0=10).events) == [ONE_AFTER_ANOTHER]


def test_a_gap_after_a_move_is_in_doubt_where_planned_ranges_fill_it():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=5)
    script.moved("a", 1, T0, 5, 100).planned("a", 1, 1, (T0, 100, 110))
    script.planned("a", 1, 2, (T0, 110, 120)).committed("a", 1, 2, t0=120)
    assert found(script.events) == []
    assert [doubt.plan.range.end for doubt in verify(script.events).in_doubt] == [110]


def test_what_others_went_on_after_does_not_fill_a_gap_later():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=5)
    script.planned("a", 1, 1, (T0, 5, 7)).assigned("b", 2, T0).planned("b", 2, 0, (T0, 5, 8)).committed("b", 2, 0, t0=8)
    script.moved("b", 2, T0, 8, 5).planned("b", 2, 1, (T0, 7, 9)).committed("b", 2, 1, t0=9)
    assert found(script.events) == [ONE_AFTER_ANOTHER]


def test_an_empty_range_changes_nothing():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=5)
    assert found(script.planned("a", 1, 1, (T0, 5, 5)).committed("a", 1, 1, t0=5).events) == []


def test_what_was_planned_after_a_gap_does_not_fill_it():
    script = Script().assigned("a", 1, T0).planned("a", 1, 0, (T0, 0, 5)).committed("a", 1, 0, t0=5)
    script.planned("a", 1, 1, (T0, 7, 9)).planned("a", 1, 2, (T0, 5, 7)).committed("a", 1, 1, t0=9)
    assert found(script.events) == [ONE_AFTER_ANOTHER]


@pytest.mark.parametrize("how", ["revoked", "lost"])
def test_a_plan_after_giving_back_is_found_until_it_is_assigned_again(how):
    script = Script().assigned("a", 1, T0, T1)
    getattr(script, how)("a", 1, T1).planned("a", 1, 0, (T0, 0, 5))
    assert found(script.events) == []
    script.planned("a", 1, 1, (T1, 0, 5))
    assert found(script.events) == [GIVEN_BACK]
    assert proof(script.events) == ["run:2", "run:4"]
    script.assigned("a", 2, T1).planned("a", 2, 1, (T1, 0, 5))
    assert found(script.events) == [GIVEN_BACK]


# Random runs


class Simulation:
    """A correct group with random actions from `draw`; returns the events of its members."""

    MEMBERS = ("a", "b", "c")
    PARTITIONS = tuple(TopicPartition("orders", number) for number in range(4))

    def __init__(self, rng):
        self.rng = rng
        self.script = Script()
        self.generation = 0
        self.owned = {}  # of members that live
        self.position = {}  # of members, by partition
        self.batch = dict.fromkeys(self.MEMBERS, 0)
        self.planned = {}  # of members, the batch that runs
        self.committed = dict.fromkeys(self.PARTITIONS, 0)

    def run(self, steps):
        for _ in range(steps):
            self.rng.choice([self.join, self.leave, self.plan, self.plan, self.succeed, self.succeed, self.crash])()
        return self.script.events

    def join(self):
        if idle := [member for member in self.MEMBERS if member not in self.owned]:
            self.rebalance({*self.owned, self.rng.choice(idle)})

    def leave(self):
        if self.owned:
            member = self.rng.choice(sorted(self.owned))
            self.commit(member)
            self.give_back(member)
            self.script.stopped(member, self.generation)
            self.rebalance(set(self.owned) - {member})

    def crash(self):
        """kill -9: before its batch was committed, after, or between the commit and telling of it."""
        if self.owned:
            member = self.rng.choice(sorted(self.owned))
            if self.rng.random() < 0.5:
                self.commit(member, written=self.rng.random() < 0.5)
            self.planned.pop(member, None)
            self.rebalance(set(self.owned) - {member})

    def rebalance(self, members):
        for member in sorted(set(self.owned) & members):
            self.commit(member)
            self.give_back(member)
        self.generation += 1
        for member in set(self.owned) - members:
            del self.owned[member], self.position[member]
        shares = {member: [] for member in members}
        for tp in self.PARTITIONS if members else ():
            shares[self.rng.choice(sorted(members))].append(tp)
        for member in self.rng.sample(sorted(members), len(members)):
            self.script.assigned(member, self.generation, *shares[member])
            before = self.position.get(member, {})
            self.owned[member], self.position[member] = shares[member], {}
            for tp in shares[member]:
                to = self.committed[tp]
                if self.rng.random() < 0.1:  # somebody set the group's offset
                    to = self.rng.randrange(to + 100)
                if before.get(tp) != to:
                    self.script.moved(member, self.generation, tp, before.get(tp), to)
                self.position[member][tp] = to

    def give_back(self, member):
        tps = [tp for tp in self.owned[member] if self.rng.random() < 0.7]
        if tps:
            getattr(self.script, self.rng.choice(["revoked", "lost"]))(member, self.generation, *tps)

    def plan(self):
        free = [member for member in sorted(self.owned) if member not in self.planned and self.owned[member]]
        if free:
            member = self.rng.choice(free)
            tps = self.rng.sample(self.owned[member], self.rng.randint(1, len(self.owned[member])))
            starts = {tp: self.position[member][tp] for tp in tps}
            self.planned[member] = [(tp, start, start + self.rng.randint(1, 50)) for tp, start in starts.items()]
            self.script.planned(member, self.generation, self.batch[member], *self.planned[member])

    def succeed(self):
        if self.planned:
            self.commit(self.rng.choice(sorted(self.planned)))

    def commit(self, member, written=True):
        ranges = self.planned.pop(member, None)
        if ranges is None:
            return
        ends = {tp: end for tp, _, end in ranges}
        self.committed |= ends
        self.position[member] |= ends
        if written:
            offsets = {f"t{tp.partition}": end for tp, end in ends.items()}
            self.script.committed(member, self.generation, self.batch[member], **offsets)
            self.batch[member] += 1


def simulated(seed, steps):
    return Simulation(random.Random(seed)).run(steps)


SEEDS = st.integers(0, 2**32)
A_FIFTH = settings.default.max_examples // 5
"""Of the examples that other properties get: these runs are long."""


@given(SEEDS, st.integers(1, 120))
def test_a_group_as_it_should_be_violates_nothing(seed, steps):
    assert verify(simulated(seed, steps)).violations == ()


def some(events, rng, wanted):
    """Index of one of the events that fulfil `wanted`; without any, another run is tried."""
    fitting = [n for n, event in enumerate(events) if wanted(event)]
    assume(fitting)
    return rng.choice(fitting)


def assign_it_twice(events, rng):
    n = some(events, rng, lambda e: e.kind == "assigned" and e.partitions)
    tp = rng.choice(sorted(events[n].partitions))
    twin = replace(events[n], member="an intruder", partitions=frozenset({tp}))
    return [*events[: n + 1], twin, *events[n + 1 :]], ONE_OWNER


def plan_what_is_not_assigned(events, rng):
    n = some(events, rng, lambda e: e.kind == "planned")
    extra = OffsetRange(TopicPartition("never assigned", 0), 0, 1)
    return [*events[:n], replace(events[n], ranges=(*events[n].ranges, extra)), *events[n + 1 :]], PLANNED_BY_OWNER


def plan_under_another_generation(events, rng):
    n = some(events, rng, lambda e: e.kind == "planned")
    changed = replace(events[n], generation=events[n].generation + 1000)
    return [*events[:n], changed, *events[n + 1 :]], PLANNED_BY_OWNER


def commit_something_else(events, rng):
    n = some(events, rng, lambda e: e.kind == "committed")
    tp = rng.choice(sorted(events[n].offsets))
    changed = replace(
        events[n], offsets={**events[n].offsets, tp: events[n].offsets[tp] + rng.choice([-60, -1, 1, 60])}
    )
    assume(not [r for e in events[:n] for r in e.ranges if (r.tp, r.end) == (tp, changed.offsets[tp])])
    return [*events[:n], changed, *events[n + 1 :]], COMMITTED_AS_PLANNED


def commit_under_another_generation(events, rng):
    n = some(events, rng, lambda e: e.kind == "committed")
    changed = replace(events[n], generation=events[n].generation - 1000)
    return [*events[:n], changed, *events[n + 1 :]], COMMITTED_AS_PLANNED


def commit_it_again_later(events, rng):
    """A zombie: its commit arrives after another member went on."""
    n = some(events, rng, lambda e: e.kind == "committed")
    tp = rng.choice(sorted(events[n].offsets))
    later = [e for e in events[n + 1 :] if tp in e.offsets]
    assume(later and later[-1].offsets[tp] > events[n].offsets[tp])
    last = events.index(later[-1])
    assume(not [e for e in events[last:] if tp in e.moves and e.member == events[n].member])
    return [*events, replace(events[n], offsets={tp: events[n].offsets[tp]})], NEVER_BACKWARD


def leave_a_batch_out(events, rng):
    """Neither planned nor committed, and the same member goes on after it."""
    fitting = []
    for tp in Simulation.PARTITIONS:
        of_tp = [m for m, e in enumerate(events) if tp in e.offsets or tp in e.moves or tp in {r.tp for r in e.ranges}]
        for five in zip(*(of_tp[first:] for first in range(5)), strict=False):
            kinds = [events[m].kind for m in five]  # nothing in between that excuses a gap
            alone = len({events[m].member for m in five[1:]}) == 1
            if alone and kinds == ["committed", "planned", "committed", "planned", "committed"]:
                fitting.append((tp, five[1:3]))
    assume(fitting)
    tp, batch = rng.choice(fitting)

    def without(event):
        offsets = {other: offset for other, offset in event.offsets.items() if other != tp}
        return replace(event, offsets=offsets, ranges=tuple(r for r in event.ranges if r.tp != tp))

    return [without(e) if m in batch else e for m, e in enumerate(events)], ONE_AFTER_ANOTHER


def plan_after_giving_back(events, rng):
    n = some(events, rng, lambda e: e.kind in ("revoked", "lost"))
    tp = rng.choice(sorted(events[n].partitions))
    extra = replace(events[n], kind="planned", partitions=frozenset(), ranges=(OffsetRange(tp, 0, 1),), batch=99)
    return [*events[: n + 1], extra, *events[n + 1 :]], GIVEN_BACK


MUTATIONS = [
    assign_it_twice,
    plan_what_is_not_assigned,
    plan_under_another_generation,
    commit_something_else,
    commit_under_another_generation,
    commit_it_again_later,
    leave_a_batch_out,
    plan_after_giving_back,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
@given(seed=SEEDS)
@settings(max_examples=A_FIFTH)
def test_one_wrong_thing_in_a_random_run_is_found(mutation, seed):
    rng = random.Random(seed)
    events, invariant = mutation(simulated(seed, 200), rng)
    assert invariant in found(events)


# Files


def as_line(event):
    """An event as a query writes it."""
    fields = {"time_ms": event.time_ms, "event": event.kind, "group": event.group, "member": event.member,
              "generation": event.generation}  # fmt: skip
    tp = T0.topic
    match event.kind:
        case "assigned" | "revoked" | "lost":
            fields["partitions"] = {tp: sorted(p.partition for p in event.partitions)}
        case "planned":
            fields |= {
                "batch": event.batch,
                "ranges": {tp: {str(r.tp.partition): [r.start, r.end] for r in event.ranges}},
            }
            fields |= {"replay": True} if event.replay else {}
        case "committed":
            fields |= {"batch": event.batch, "offsets": {tp: {str(p.partition): o for p, o in event.offsets.items()}}}
        case "moved":
            moves = {str(p.partition): {"from": m.before, "to": m.to, "why": m.why} for p, m in event.moves.items()}
            fields["positions"] = {tp: moves}
    return json.dumps(fields)


@given(SEEDS)
@settings(max_examples=A_FIFTH)
def test_events_are_read_as_they_were_written(seed):
    for event in simulated(seed, 60):
        assert parse(as_line(event), event.where) == event


def write(path, events):
    path.write_text("".join(as_line(event) + "\n" for event in events))
    return path


def test_files_are_merged_by_time_and_one_files_order_stays_even_if_its_clock_was_set_back(tmp_path):
    events = good().events
    a = write(tmp_path / "a", [e for e in events if e.member == "a"])
    b = write(tmp_path / "b", [e for e in events if e.member == "b"])
    run = read_run([b, a])
    assert [(e.time_ms, e.kind, e.member) for e in run.events] == [(e.time_ms, e.kind, e.member) for e in events]
    assert run.events[0].where == f"{a}:1"
    back = [replace(events[0], time_ms=time_ms) for time_ms in (5.0, 3.0, 9.0)]
    assert [e.time_ms for e in merge([back, [replace(events[1], time_ms=4.0)]])] == [4.0, 5.0, 3.0, 9.0]


def test_the_command_prints_a_summary_and_ends_with_0(tmp_path, capsys):
    assert main(["verify", str(write(tmp_path / "run", good().events))]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == (
        f"in doubt: b planned orders-1[12,20) and no event has its commit ({tmp_path}/run:16, {tmp_path}/run:19)"
    )
    summary, verdict = out[1:]
    assert summary == (
        "20 events of 2 members in 1 group: 3 generations, 2 partitions, 6 batches, 42 records committed, "
        "1 range with 8 records in doubt"
    )
    assert verdict == "no violations"


def test_the_command_prints_violations_with_the_lines_that_prove_them_and_ends_with_3(tmp_path, capsys):
    path = write(tmp_path / "run", Script().assigned("a", 1, T0).assigned("b", 1, T0).events)
    assert main(["verify", str(path)]) == 3
    line = f"violation: one owner: orders-0 was assigned to a and to b in generation 1 ({path}:1, {path}:2)"
    assert line in capsys.readouterr().out.splitlines()
    assert main(["verify", "--json", str(path)]) == 3
    violation, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (violation["kind"], violation["lines"]) == ("violation", [f"{path}:1", f"{path}:2"])
    assert (summary["kind"], summary["violations"], summary["events"]) == ("summary", 1, 2)


def test_the_command_prints_what_is_unseen_unless_all_members_wrote(tmp_path, capsys):
    path = write(tmp_path / "run", shared_with_a_neighbour().events)
    assert main(["verify", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    lines = f"{path}:3, {path}:7, {path}:8"
    assert out[0] == f"unseen: the reader of orders-1[5,9), if there was one, wrote no events ({lines})"
    assert out[1].endswith(" records committed, 1 range with 4 records unseen")
    assert out[2] == "no violations"
    assert main(["verify", "--json", str(path)]) == 0
    unseen, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert unseen == {
        "kind": "unseen", "topic": "orders", "partition": 1, "start": 5, "end": 9,
        "lines": [f"{path}:3", f"{path}:7", f"{path}:8"],
    }  # fmt: skip
    assert (summary["unseen"], summary["records_unseen"], summary["violations"]) == (1, 4, 0)
    assert main(["verify", "--all-members", str(path)]) == 3


def test_a_last_line_cut_off_is_noted_and_ignored(tmp_path, capsys):
    path = write(tmp_path / "run", good().events)
    path.write_bytes(path.read_bytes()[:-3])
    assert main(["verify", str(path)]) == 0
    assert f"note: {path}:20: cut off, ignored" in capsys.readouterr().out
    (tmp_path / "empty").touch()
    assert main(["verify", str(tmp_path / "empty")]) == 0


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"time_ms": 1, "ev', "Unterminated string"),
        ("[]", "not a JSON object"),
        ('{"event": "stopped"}', "there is no 'time_ms'"),
        ('{"time_ms": "now", "event": "stopped", "group": "g", "member": "a", "generation": 1}', "'time_ms' is 'now'"),
        ('{"time_ms": 1, "event": "stopped", "group": "g", "member": "a", "generation": true}', "'generation' is True"),
        ('{"time_ms": NaN, "event": "stopped", "group": "g", "member": "a", "generation": 1}', "NaN"),
        ('{"time_ms": 1, "event": "paused", "group": "g", "member": "a", "generation": 1}', "event 'paused' is not"),
        ("planned", "there is no 'ranges'"),
        ('planned "batch": 1, "ranges": {"t": {"0": [5, 3]}}', "range of t-0 is [5, 3]"),
        ('planned "batch": 1, "ranges": {"t": {"zero": [5, 6]}}', "invalid literal"),
        ('committed "batch": 1, "offsets": {"t": {"0": null}}', "offset of t-0 is None"),
        ('committed "batch": 1, "offsets": {"t": [0]}', "the value of topic t is [0]"),
        ('assigned "partitions": {"t": ["0"]}', "a partition of t is '0'"),
        ('moved "positions": {"t": {"0": {"from": 1}}}', "there is no 'to'"),
        ('moved "positions": {"t": {"0": {"from": "1", "to": 2}}}', "'from' of t-0 is '1'"),
    ],
)
def test_a_whole_line_that_is_no_event_is_an_error_that_names_it(tmp_path, capsys, line, problem):
    if not line.startswith(("{", "[")):
        kind, _, rest = line.partition(" ")
        more = f", {rest}" if rest else ""
        line = f'{{"time_ms": 1, "event": "{kind}", "group": "g", "member": "a", "generation": 1{more}}}'
    path = tmp_path / "run"
    path.write_text(f"\n{line}\n" + as_line(good().events[0]) + "\n")
    assert main(["verify", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"python -m spark_kafka_group verify: {path}:2: not an event: ")
    assert problem in error
    assert error.count("\n") == 1


def test_a_file_that_is_not_there_is_an_error(tmp_path, capsys):
    assert main(["verify", str(tmp_path / "nowhere")]) == 1
    assert capsys.readouterr().err.endswith("nowhere cannot be read: No such file or directory\n")


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_what_may_have_no_end_is_refused(tmp_path, capsys, kind):
    path = {"device": Path("/dev/zero"), "pipe": tmp_path / "pipe", "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    assert main(["verify", str(path)]) == 1
    assert f"{path} cannot be read: it is no regular file. Write the events into one\n" in capsys.readouterr().err


def test_reports_are_values():
    assert verify(good().events) == verify(good().events)
    assert {field.name for field in dataclasses.fields(verify([]))} >= {"events", "violations", "in_doubt"}


def test_a_line_that_has_no_end_is_refused_before_it_fills_the_memory(tmp_path):
    path = tmp_path / "run"
    with path.open("wb") as file:
        file.truncate(8 * event_logs.LONGEST_LINE)  # a sparse file of zeros, as a full disk may leave it
    tracemalloc.start()
    try:
        with pytest.raises(ToolError, match=rf"{path}:1: not an event: the line has 16,777,216 bytes or more"):
            read_run([path])
        assert tracemalloc.get_traced_memory()[1] < 4 * event_logs.LONGEST_LINE
    finally:
        tracemalloc.stop()


def test_a_long_log_takes_four_times_its_size_in_memory(tmp_path):
    path = tmp_path / "run"
    with path.open("w") as file:
        for batch in range(1_000):
            of_batch = {"time_ms": 1.7e12, "group": "billing", "member": "a" * 32, "generation": 1, "batch": batch}
            at = 10**10 + 1_000 * batch
            ranges = {str(number): [at + number, at + number + 999] for number in range(20)}
            offsets = {number: end for number, (_, end) in ranges.items()}
            for fields in (
                {"event": "planned", "ranges": {"orders": ranges}},
                {"event": "committed", "offsets": {"orders": offsets}},
            ):
                file.write(json.dumps(of_batch | fields) + "\n")
    tracemalloc.start()
    try:
        run = read_run([path])
        assert tracemalloc.get_traced_memory()[1] < 5 * path.stat().st_size
    finally:
        tracemalloc.stop()
    assert len(run.events) == 2_000
