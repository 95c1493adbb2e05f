"""Where a query starts: by the checkpoint, the group, or the options."""

import json

import pytest

from spark_kafka_group.driver.positions.rules import (
    Checkpoint,
    Start,
    StartRules,
    by_reset,
    new_partitions,
    of_later_batches,
    recreated,
    refuse_older_checkpoint,
    replaced_in,
    restarted,
)
from spark_kafka_group.driver.positions.rules import adopted as to_adopt
from spark_kafka_group.errors import NoOffsetForPartitionError, OffsetConflictError, OptionError
from spark_kafka_group.options.bounds import Bound
from spark_kafka_group.values.commit_metadata import (
    adopting_metadata,
    commit_metadata,
    correcting_metadata,
    is_of_batch,
    is_own,
    left_out_of,
    writer_of,
)
from spark_kafka_group.values.offsets import EARLIEST, LATEST, TopicPartition
from spark_kafka_group.wire import Committed

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OURS = commit_metadata("me", 3)


def named(tp, offset):
    """startingOffsets that name one partition."""
    return Bound("startingOffsets", named=frozenset({(tp.topic, tp.partition, offset)}))


def restart(committed, policy="auto", foreign=False):
    """A query that stood at offset 5 of A starts again."""
    return restarted(Checkpoint({A: 5}, "me", 4, 2, foreign), committed, policy)


def test_a_commits_note_names_its_writer():
    assert writer_of(commit_metadata("me", 3)) == ("me", 3, None, None, None, None, {}, None)
    assert writer_of(commit_metadata("me", 3, 7)) == ("me", 3, 7, None, None, None, {}, None)
    assert writer_of(commit_metadata("me", 3, 7, without=8)) == ("me", 3, 7, 8, None, None, {}, None)
    assert writer_of(adopting_metadata("me", 3, 7, "text")) == ("me", 3, 7, None, 7, None, {}, None)
    assert json.loads(commit_metadata("me", 3, 7)) == {"reader": "me", "generation": 3, "batch": 7}


def test_what_a_batch_went_without_is_to_be_read_in_the_note_of_who_adopts_the_offset():
    note = commit_metadata("first", 3, 7, without=8)
    for reader in ("second", "third"):
        note = adopting_metadata(reader, 4, 2, note)
        assert writer_of(note).query_id == reader
        assert [left_out_of(note, who) for who in ("first", "second", "third")] == [8, None, None]


def test_what_was_left_out_before_the_checkpoints_batch_was_planned_is_of_another_batch_of_its_number():
    note = commit_metadata("me", 3, 7, without=8)
    assert [left_out_of(note, "me", generation) for generation in (3, 4)] == [8, None]
    note = adopting_metadata("other", 9, 2, note)
    assert [left_out_of(note, "me", generation) for generation in (3, 4)] == [8, None]
    before = json.dumps({"reader": "o", "generation": 9, "batch": 2, "left_by": {"reader": "me", "without": 8}})
    assert left_out_of(before, "me", 4) == 8  # of a version that did not note the generation


def test_an_offset_that_was_adopted_in_a_later_generation_than_the_checkpoints_is_another_processs():
    note = adopting_metadata("me", 5, 2, "")
    assert [is_own(note, "me", 3, generation) for generation in (-1, 4, 5)] == [True, False, True]
    note = correcting_metadata("me", 7, 2, None, correcting_metadata("me", 6, 2, 3, note))  # while a batch yields
    assert [is_own(note, "me", 3, generation) for generation in (-1, 4, 5)] == [True, False, True]
    assert is_own(commit_metadata("me", 5, 2), "me", 3, 4)


def test_an_offset_that_was_adopted_before_generations_counted_anew_is_adopted_again():
    committed = {A: Committed(5, adopting_metadata("me", 70, 2, ""))}
    assert to_adopt({A: 5}, committed, {}, "me", 2, 70) == {}
    assert to_adopt({A: 5}, committed, {}, "me", 2, 1) == committed
    assert is_own(adopting_metadata("me", 1, 2, committed[A].metadata), "me", 3, 2)
    assert to_adopt({A: 5}, {A: Committed(5, commit_metadata("me", 70, 2))}, {}, "me", 2, 1) == {}


def test_a_query_that_plans_a_batch_again_takes_back_that_it_went_without_the_partition():
    note = adopting_metadata("second", 4, 2, commit_metadata("first", 3, 7, without=8))
    assert left_out_of(adopting_metadata("first", 5, 7, note), "first") is None
    assert left_out_of(adopting_metadata("first", 5, 8, note), "first") == 8


def test_an_offset_stays_own_for_those_who_had_it_before():
    note = adopting_metadata("second", 4, 2, commit_metadata("first", 3, 7))
    note = adopting_metadata("third", 5, 0, note)
    assert [is_own(note, who, 2) for who in ("first", "second", "third", "fourth")] == [True, False, True, False]
    assert is_own(note, "second", 3)
    note = adopting_metadata("first", 6, 9, note)
    assert [is_own(note, who, 3) for who in ("first", "second", "third")] == [True] * 3
    # Until somebody commits there, or it is known that a batch has not read it.
    assert not is_own(correcting_metadata("second", 7, 4, None, note), "first", 9)
    note = adopting_metadata("second", 8, 4, commit_metadata("first", 7, 9, without=10))
    assert not is_own(note, "first", 10)


def test_a_driver_that_was_replaced_is_fenced_also_where_another_query_has_adopted_the_offset():
    group = {A: Committed(5, adopting_metadata("other", 9, 2, commit_metadata("me", 8, 7)))}
    assert [replaced_in(group, "me", 7, held) for held in (7, 8)] == [8, None]
    assert [replaced_in(group, "me", 7, 1, noted) for noted in (7, 8)] == [8, None]  # 8: generations count anew
    assert replaced_in(group, "other", 1, 8) == 9


def test_a_commit_is_that_of_a_batch_also_where_another_query_has_adopted_it():
    note = commit_metadata("me", 3, 7)
    assert [is_of_batch(note, "me", batch) for batch in (6, 7, 8)] == [False, True, False]
    assert is_of_batch(adopting_metadata("other", 4, 2, note), "me", 7)
    assert not is_of_batch(adopting_metadata("me", 4, 7, ""), "other", 7)
    # An offset that the query itself has adopted, and not committed.
    assert not is_of_batch(adopting_metadata("other", 5, 2, adopting_metadata("me", 4, 6, "")), "me", 7)
    assert not is_of_batch("", "me", 7)


def test_where_the_sink_commits_offsets_with_rows_the_groups_offset_says_what_is_written():
    def starts(note, offset, policy="auto"):
        checkpoint = Checkpoint({A: 5}, "me", 4, 2, False, in_transaction=True)
        return restarted(checkpoint, {A: Committed(offset, note)}, policy)[A]

    for policy in ("auto", "group", "fail"):
        start = starts(commit_metadata("me", 3, 1), 2, policy)
        assert (start.offset, start.commit, start.conflict) == (2, False, None)
    assert starts(commit_metadata("me", 3, 1), 2, "checkpoint").offset == 5
    assert starts(commit_metadata("me", 4, 2), 5).offset == 5
    assert starts("", 3).offset == 3
    assert restarted(Checkpoint({A: 5}, "me", 4, 2, False, in_transaction=True), {}, "auto")[A].offset == 5


def test_a_checkpoint_is_older_where_the_group_has_a_later_batch_of_the_query():
    for batch in (None, 1, 2):
        refuse_older_checkpoint({A: Committed(5, commit_metadata("me", 3, batch)), B: Committed(5, "")}, "me", 2)
    refuse_older_checkpoint({A: Committed(5, commit_metadata("other", 3, 9))}, "me", 2)
    with pytest.raises(OffsetConflictError, match=r"batch 2 .* batch 3"):
        refuse_older_checkpoint({A: Committed(5, commit_metadata("me", 3, 3))}, "me", 2)


def test_an_offset_may_be_of_a_later_batch():
    def later(note, position=4):
        return of_later_batches({A: Committed(5, note)}, {A: position}, "me", 2) == {A}

    for note in ("", commit_metadata("me", 3, 2), commit_metadata("me", 3), commit_metadata("other", 3, 9)):
        assert not later(note)
    assert later(commit_metadata("me", 3, 3))
    unnamed = adopting_metadata("other", 4, 7, commit_metadata("me", 3, 3))
    assert later(unnamed)
    assert not later(unnamed, position=6)
    assert not later(adopting_metadata("me", 5, 2, adopting_metadata("other", 4, 7, commit_metadata("me", 3, 2))))


def test_of_many_queries_that_had_an_offset_the_note_names_the_last():
    note = ""
    for reader in range(100):
        note = adopting_metadata(f"{reader:032}", 4, 2, note)
    assert len(note) < 1000
    assert [is_own(note, f"{reader:032}", 3) for reader in (0, 98, 99)] == [False, True, True]


def test_a_correction_at_an_adopted_offset_leaves_it_adopted():
    adopted = adopting_metadata("me", 4, 2, "")
    for without in (None, 3):
        note = correcting_metadata("me", 5, 2, without, adopted)
        assert [is_own(note, "me", batch) for batch in (2, 3)] == [False, True]
        assert left_out_of(note, "me") == without
    had = adopting_metadata("me", 4, 2, commit_metadata("other", 3, 7))
    assert is_own(correcting_metadata("me", 6, 2, None, correcting_metadata("me", 5, 2, 3, had)), "other", 7)
    for other in (None, "", adopting_metadata("other", 4, 2, "")):
        assert correcting_metadata("me", 5, 2, None, other) == commit_metadata("me", 5, 2)


@pytest.mark.parametrize("metadata", ["", "text", "3", "[]", '{"reader": 3}', '{"other": "x"}', '{"reader": "me"}'])
def test_a_commit_without_our_note_belongs_to_another_program(metadata):
    assert writer_of(metadata) is None


@pytest.mark.parametrize(("reset", "offset"), [("latest", LATEST), ("earliest", EARLIEST)])
def test_a_new_query_starts_at_the_groups_offset_else_where_the_reset_policy_says(reset, offset):
    starts = StartRules(Bound("startingOffsets", group=True), reset).new([A, B], {A: Committed(90, "")})
    assert starts == {A: Start(90), B: Start(offset)}


def test_without_a_reset_policy_the_partitions_lacking_an_offset_are_named():
    with pytest.raises(NoOffsetForPartitionError, match="t-1"):
        StartRules(Bound("startingOffsets", group=True), "none").new([A, B], {A: Committed(90, "")})
    assert StartRules(Bound("startingOffsets", group=True), "none").new([A], {A: Committed(0, "")}) == {A: Start(0)}


def test_explicit_starting_offsets_win_over_the_group():
    committed = {A: Committed(90, "")}
    assert StartRules(Bound("startingOffsets", every=EARLIEST), "latest").new([A], committed) == {
        A: Start(EARLIEST, commit=True)
    }
    assert StartRules(named(A, 7), "latest").new([A], committed) == {A: Start(7, commit=True)}
    assert StartRules(named(A, 90), "latest").new([A], committed) == {A: Start(90)}


@pytest.mark.parametrize("starting", [Bound("startingOffsets", group=True), Bound("startingOffsets", every=LATEST)])
@pytest.mark.parametrize("reset", ["latest", "earliest"])
def test_a_retry_topic_starts_where_the_group_left_off_else_at_its_first_record_whatever_options_say(starting, reset):
    rules = StartRules(starting, reset, retry_delays_ms=(5,))
    retries = [TopicPartition("t-retry-5", 0), TopicPartition("t-retry-5", 1)]
    committed = {A: Committed(3, ""), retries[1]: Committed(90, "")}
    starts = rules.new([A, *retries], committed)
    assert starts == {A: starts[A], retries[0]: Start(EARLIEST), retries[1]: Start(90)}
    assert starts[A].offset == (3 if starting.group else LATEST)
    assert rules.gained(retries, {}) == dict.fromkeys(retries, Start(EARLIEST))
    assert StartRules(named(A, 7), "none", (5,)).new([A, retries[0]], {}) == {A: Start(7), retries[0]: Start(EARLIEST)}
    assert StartRules(named(retries[0], 7), reset, (5,)).new([retries[0]], {}) == {retries[0]: Start(7)}
    other = TopicPartition("t-retry-6", 0)
    assert StartRules(starting, "latest", (5,)).new([other], {}) == {other: Start(LATEST)}


def test_starting_offsets_must_name_every_partition():
    with pytest.raises(OptionError, match="names no offset for t-1"):
        StartRules(named(A, 7), "latest").new([A, B], {})


def test_a_restart_goes_on_where_checkpoint_and_group_agree():
    assert restart({A: Committed(5, "")}) == {A: Start(5)}


def test_after_a_crash_before_the_commit_the_checkpoint_is_right_and_is_committed():
    start = restart({A: Committed(3, OURS)})[A]
    assert (start.offset, start.commit) == (5, True)
    assert "5" in start.conflict
    assert "3" in start.conflict


def test_an_older_checkpoint_restored_on_purpose_is_right():
    start = restart({A: Committed(9, OURS)})[A]
    assert (start.offset, start.commit) == (5, True)


def test_an_adopted_offset_is_anothers_for_a_checkpoint_that_does_not_know_it_and_own_for_later_ones():
    adopted = {batch: Committed(3, adopting_metadata("me", 4, batch, "")) for batch in (1, 2, 3)}
    assert {batch: restart({A: group})[A] for batch, group in adopted.items()} == {
        1: Start(5, commit=True, conflict=restart({A: adopted[1]})[A].conflict),
        2: Start(3, conflict=restart({A: adopted[2]})[A].conflict),
        3: Start(3, conflict=restart({A: adopted[3]})[A].conflict),
    }
    assert "another program, and this query has adopted it in generation 4" in restart({A: adopted[2]})[A].conflict
    assert restart({A: adopted[1]}, "fail")[A].offset == 5
    with pytest.raises(OffsetConflictError):
        restart({A: adopted[2]}, "fail")


@pytest.mark.parametrize("metadata", ["", commit_metadata("other", 8)])
def test_an_offset_of_another_program_is_right(metadata):
    start = restart({A: Committed(2, metadata)})[A]
    assert (start.offset, start.commit) == (2, False)
    assert "(another " in start.conflict


def test_offsets_that_expired_are_committed_again_from_the_checkpoint():
    assert restart({}) == {A: Start(5, commit=True)}


def test_a_checkpoint_of_sparks_own_source_is_right_whatever_the_group_says():
    start = restart({A: Committed(2, "")}, foreign=True)[A]
    assert (start.offset, start.commit) == (5, True)


@pytest.mark.parametrize(
    ("group", "checkpoint", "by_group"),
    [(Committed(2, ""), (5, True), (2, False)), (Committed(3, OURS), (5, True), (3, False))],
    ids=["another program's", "our own"],
)
def test_a_policy_decides_without_regard_to_the_writer(group, checkpoint, by_group):
    start = restart({A: group}, "checkpoint")[A]
    assert (start.offset, start.commit) == checkpoint
    start = restart({A: group}, "group")[A]
    assert (start.offset, start.commit) == by_group


@pytest.mark.parametrize("group", [Committed(2, ""), Committed(9, OURS), Committed(3, commit_metadata("other", 8))])
def test_policy_fail_stops_with_both_offsets_and_both_writers(group):
    with pytest.raises(OffsetConflictError, match=rf"t-0: the checkpoint says 5 .*, the group {group.offset} \("):
        restart({A: group}, "fail")


@pytest.mark.parametrize("committed", [{A: Committed(5, "")}, {A: Committed(3, OURS)}, {}])
def test_a_missing_commit_of_its_own_is_no_reason_to_fail(committed):
    assert restart(committed, "fail")[A].offset == 5


def test_a_partition_gained_goes_on_where_the_member_before_left_off_whatever_starting_offsets_say():
    rules = StartRules(Bound("startingOffsets", every=EARLIEST), "latest")
    assert rules.gained([A, B], {A: Committed(90, "")}) == {A: Start(90), B: Start(EARLIEST)}


def test_a_partition_that_starting_offsets_do_not_name_was_added_later_and_is_read_from_its_first_record():
    assert StartRules(named(A, 7), "latest").gained([A, B], {}) == {A: Start(7), B: Start(EARLIEST)}


@pytest.mark.parametrize("starting", [Bound("startingOffsets", every=LATEST), named(A, 7)])
def test_while_others_are_members_the_groups_offset_wins_over_starting_offsets(starting):
    rules = StartRules(starting, "latest")
    (start,) = rules.new([A], {A: Committed(90, "")}, ["them"]).values()
    assert (start.offset, start.commit) == (90, False)
    said = "latest" if starting.every else 7
    assert f"startingOffsets says {said}, the group has committed 90 and has other members (them)" in start.conflict
    assert rules.new([A], {}, ["them"]) == rules.new([A], {})


def test_partitions_that_start_by_the_reset_policy_are_known():
    committed = {A: Committed(90, "")}
    rules = StartRules(Bound("startingOffsets", group=True), "latest")
    assert by_reset(rules.new([A, B], committed)) == {B}
    assert by_reset(rules.new([A, B], {})) == {A, B}
    assert by_reset(rules.gained([B], {})) == {B}
    assert by_reset(StartRules(named(A, 3), "latest").new([A], {})) == set()


def test_a_topic_made_again_is_known_by_its_id():
    assert recreated({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b"]


def test_a_later_commit_of_the_same_query_shows_that_another_process_took_over():
    committed = {A: Committed(5, commit_metadata("me", 7)), B: Committed(5, commit_metadata("other", 9))}
    assert replaced_in(committed, "me", 3, 6) == 7
    assert replaced_in(committed, "me", 3, 7) is None
    committed = {A: Committed(5, commit_metadata("me", 7, 4))}
    assert [replaced_in(committed, "me", batch, 6) for batch in (3, 4)] == [7, None]  # 4: generations count anew


def test_a_new_partition_is_read_from_its_first_record():
    assert new_partitions([A, B], {B: Committed(4, "")}) == {A: Start(EARLIEST), B: Start(4)}
