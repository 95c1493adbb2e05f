"""Our strategies against Kafka's own, on random groups."""

from groups import as_sets, groups, holders, is_allowed, is_complete, moves, partitions_of, unevenness
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from java_assignors import JavaError

from spark_kafka_group.assignors import BUILT_IN

LONGEST_REBALANCE = 8  # rounds, the last of which changes nothing; six is the most that long runs have seen

random_groups = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def ours(strategy, group):
    return BUILT_IN[strategy].assign(group.members, group.partitions)


def of_java(java, strategy, group):
    """Java's assignment, where Java has one that is right.

    Its sticky strategies fail, or give members what they do not subscribe to, for some groups with stale claims whose
    members subscribe to different topics.
    """
    try:
        assignment = java.assign(strategy, group.members, group.partitions)
    except JavaError:
        assume(False)
    assume(is_allowed(group, assignment))
    return assignment


@given(groups())
@random_groups
def test_range_gives_what_java_gives(java, group):
    assert as_sets(ours("range", group)) == as_sets(java.assign("range", group.members, group.partitions))


@given(groups())
@random_groups
def test_roundrobin_gives_what_java_gives(java, group):
    assert as_sets(ours("roundrobin", group)) == as_sets(java.assign("roundrobin", group.members, group.partitions))


@given(groups())
@random_groups
def test_sticky_is_as_even_as_java_and_moves_no_more_for_it(java, group):
    mine, theirs = ours("sticky", group), of_java(java, "sticky", group)
    assert is_complete(group, mine)
    assert unevenness(mine) <= unevenness(theirs)
    if unevenness(mine) == unevenness(theirs):
        assert moves(group, mine) <= moves(group, theirs)


@given(groups())
@random_groups
def test_cooperative_sticky_gives_no_less_in_the_first_round_than_java_can_give_safely(java, group):
    held = holders(group)

    def safely_given(assignment):
        """Partitions without a second valid claim; Java may move others if their new owner claims them too."""
        return sum(held.get(tp, member) == member for member, owned in assignment.items() for tp in owned)

    mine, theirs = ours("cooperative-sticky", group), of_java(java, "cooperative-sticky", group)
    assert is_allowed(group, mine)
    assert safely_given(mine) == len(partitions_of(mine))
    if unevenness(ours("sticky", group)) == unevenness(of_java(java, "sticky", group)):
        assert safely_given(mine) >= safely_given(theirs)


@given(groups(), st.lists(st.booleans(), min_size=LONGEST_REBALANCE, max_size=LONGEST_REBALANCE))
@random_groups
def test_cooperative_rounds_come_to_an_end_whoever_leads_and_only_a_more_even_one_follows(java, group, we_lead):
    for generation, leading in enumerate(we_lead, 8):
        before = {member.member_id: member.owned for member in group.members}
        assigned = ours("cooperative-sticky", group) if leading else of_java(java, "cooperative-sticky", group)
        group = group.rejoined(assigned, generation)
        if as_sets(assigned) == before:
            break
    assert as_sets(assigned) == before
    assert is_complete(group, assigned)
    best = ours("sticky", group)
    assert unevenness(best) < unevenness(assigned) or as_sets(best) == as_sets(assigned)


@given(groups(), st.sampled_from(["sticky", "cooperative-sticky"]))
@random_groups
def test_java_leaves_as_it_is_what_we_assigned(java, group, strategy):
    settled = ours("sticky", group)
    assert as_sets(of_java(java, strategy, group.rejoined(settled, 8))) == as_sets(settled)
