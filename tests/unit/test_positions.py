"""Who is right about where to start: the checkpoint, the group, or the options."""

import pytest

from spark_kafka_group.driver.positions import (
    Start,
    StartRules,
    commit_note,
    new_partitions,
    replaced_in,
    restarted,
    writer_of,
)
from spark_kafka_group.errors import NoOffsetForPartitionError, OptionError
from spark_kafka_group.offsets import EARLIEST, LATEST, TopicPartition
from spark_kafka_group.wire import Committed

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OURS = commit_note("me", 3)


def test_a_commits_note_names_its_writer():
    assert writer_of(commit_note("me", 3)) == ("me", 3)


@pytest.mark.parametrize("metadata", ["", "text", "3", "[]", '{"reader": 3}', '{"other": "x"}', '{"reader": "me"}'])
def test_a_commit_without_our_note_is_somebody_elses(metadata):
    assert writer_of(metadata) is None


@pytest.mark.parametrize(("reset", "offset"), [("latest", LATEST), ("earliest", EARLIEST)])
def test_a_new_query_starts_at_the_groups_offset_else_where_the_reset_policy_says(reset, offset):
    starts = StartRules("group", reset).new([A, B], {A: Committed(90, "")})
    assert starts == {A: Start(90), B: Start(offset)}


def test_without_a_reset_policy_the_partitions_lacking_an_offset_are_named():
    with pytest.raises(NoOffsetForPartitionError, match="t-1"):
        StartRules("group", "none").new([A, B], {A: Committed(90, "")})
    assert StartRules("group", "none").new([A], {A: Committed(0, "")}) == {A: Start(0)}


def test_explicit_starting_offsets_win_over_the_group():
    committed = {A: Committed(90, "")}
    assert StartRules("earliest", "latest").new([A], committed) == {A: Start(EARLIEST)}
    assert StartRules({A: 7}, "latest").new([A], committed) == {A: Start(7)}


def test_starting_offsets_must_name_every_partition():
    with pytest.raises(OptionError, match="names no offset for t-1"):
        StartRules({A: 7}, "latest").new([A, B], {})


def test_a_restart_goes_on_where_checkpoint_and_group_agree():
    assert restarted({A: 5}, {A: Committed(5, "")}, "me", False) == {A: Start(5)}


def test_after_a_crash_before_the_commit_the_checkpoint_is_right_and_is_committed():
    start = restarted({A: 5}, {A: Committed(3, OURS)}, "me", False)[A]
    assert (start.offset, start.commit) == (5, True)
    assert "5" in start.conflict
    assert "3" in start.conflict


def test_an_older_checkpoint_restored_on_purpose_is_right():
    start = restarted({A: 5}, {A: Committed(9, OURS)}, "me", False)[A]
    assert (start.offset, start.commit) == (5, True)


@pytest.mark.parametrize("metadata", ["", commit_note("other", 8)])
def test_an_offset_somebody_else_wrote_is_right(metadata):
    start = restarted({A: 5}, {A: Committed(2, metadata)}, "me", False)[A]
    assert (start.offset, start.commit) == (2, False)
    assert "somebody else" in start.conflict


def test_offsets_that_expired_are_committed_again_from_the_checkpoint():
    assert restarted({A: 5}, {}, "me", False) == {A: Start(5, commit=True)}


def test_a_checkpoint_of_sparks_own_source_is_right_whatever_the_group_says():
    start = restarted({A: 5}, {A: Committed(2, "")}, "me", True)[A]
    assert (start.offset, start.commit) == (5, True)


def test_a_later_commit_of_the_same_query_shows_that_another_process_took_over():
    committed = {A: Committed(5, commit_note("me", 7)), B: Committed(5, commit_note("other", 9))}
    assert replaced_in(committed, "me", 6) == 7
    assert replaced_in(committed, "me", 7) is None


def test_a_new_partition_is_read_from_its_first_record():
    assert new_partitions([A, B], {B: Committed(4, "")}) == {A: Start(EARLIEST), B: Start(4)}
