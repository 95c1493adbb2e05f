"""``sticky`` finds the best there is, held against all assignments of small groups, and it never fails."""

import dataclasses
import itertools
import random
import time

from groups import Group, as_sets, groups, is_allowed, is_complete, moves, subscribed_partitions, unevenness
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_kafka_group.assignors import BUILT_IN, GroupMember
from spark_kafka_group.values.offsets import TopicPartition

STICKY = BUILT_IN["sticky"].assign
STRATEGIES = st.sampled_from(sorted(BUILT_IN))


def all_assignments(group):
    tps = sorted(subscribed_partitions(group))
    takers = [[m.member_id for m in group.members if tp.topic in m.topics] for tp in tps]
    for taken in itertools.product(*takers):
        assignment = {member.member_id: [] for member in group.members}
        for tp, member in zip(tps, taken, strict=True):
            assignment[member].append(tp)
        yield assignment


@st.composite
def settled_groups(draw):
    """Small groups in which subscribers own everything: exchanges among several members are needed most often here."""
    partitions = {
        f"t{index}": range(size) for index, size in enumerate(draw(st.lists(st.integers(2, 4), min_size=2, max_size=2)))
    }
    topics = draw(st.lists(st.sampled_from([("t0",), ("t1",), ("t0", "t1")]), min_size=3, max_size=4))
    owned = [set() for _ in topics]
    for topic, numbers in partitions.items():
        subscribers = [index for index, subscribed in enumerate(topics) if topic in subscribed]
        for number in numbers if subscribers else ():
            owned[draw(st.sampled_from(subscribers))].add(TopicPartition(topic, number))
    members = [GroupMember(f"m{n}", None, topics[n], frozenset(owned[n]), 7) for n in range(len(topics))]
    return Group(members, partitions)


@given(settled_groups() | groups(max_members=4, max_topics=3, max_partitions=3))
def test_nothing_is_more_even_and_nothing_as_even_moves_less(group):
    assume(len(group.members) ** len(subscribed_partitions(group)) <= 20_000)
    found = STICKY(group.members, group.partitions)
    best = min((unevenness(assignment), moves(group, assignment)) for assignment in all_assignments(group))
    assert (unevenness(found), moves(group, found)) == best


@given(groups(), STRATEGIES, st.randoms(use_true_random=False))
def test_an_assignment_does_not_depend_on_the_order_in_which_members_and_topics_come(group, strategy, shuffled):
    members, topics = list(group.members), list(group.partitions)
    first = BUILT_IN[strategy].assign(members, group.partitions)
    shuffled.shuffle(members)
    shuffled.shuffle(topics)
    again = BUILT_IN[strategy].assign(members, {topic: group.partitions[topic] for topic in topics})
    assert as_sets(again) == as_sets(first)


@given(groups(), STRATEGIES)
def test_claims_of_partitions_that_are_gone_and_of_topics_without_subscribers_do_no_harm(group, strategy):
    gone = frozenset({TopicPartition("t0", 99), TopicPartition("x0", 0), TopicPartition("nobody", 0)})
    members = [dataclasses.replace(member, owned=member.owned | gone) for member in group.members]
    haunted = dataclasses.replace(group, members=members, partitions={**group.partitions, "nobody": range(3)})
    assignment = BUILT_IN[strategy].assign(haunted.members, haunted.partitions)
    assert is_allowed(haunted, assignment)
    assert not gone & set(itertools.chain.from_iterable(assignment.values()))
    if strategy != "cooperative-sticky":
        assert is_complete(group, assignment)


def test_a_large_group_takes_a_moment_even_if_one_member_had_everything():
    chosen = random.Random(1)
    partitions = {f"t{index}": range(50) for index in range(60)}
    everything = frozenset(TopicPartition(topic, number) for topic in partitions for number in partitions[topic])
    first = GroupMember("m0", None, tuple(partitions), everything, 7)
    others = [GroupMember(f"m{n}", None, tuple(chosen.sample(sorted(partitions), 30))) for n in range(1, 40)]
    group = Group([first, *others], partitions)
    started = time.process_time()
    assignment = STICKY(group.members, partitions)
    assert time.process_time() - started < 5
    assert is_complete(group, assignment)
    assert {len(owned) for owned in assignment.values()} == {75}
