"""Batches of a partition: which may be sent next, in which order, and with which numbers."""

from __future__ import annotations

from spark_kafka_group.executor.encode.encoder_contract import EncodedBatch
from spark_kafka_group.executor.writing.sender import ABSENT_AFTER_S, AttendedClock
from spark_kafka_group.executor.writing.sending.outbox import SEQUENCES, Outbox
from spark_kafka_group.values.offsets import TopicPartition

NODE, OTHER = 1, 2


def batch(records):
    return EncodedBatch(bytearray(records), records, 0)


def box_with(*sizes, sequence=0):
    box = Outbox(TopicPartition("orders", 0), sequence)
    for records in sizes:
        box.hand_over(batch(records), 0.0)
    return box


def sent(box, now_s=0.0):
    """All that may be sent now."""
    found = []
    while box.ready(NODE, now_s) is not None:
        found.append(box.send(NODE))
    return found


def test_the_first_batch_is_sent_alone_and_the_others_after_it_is_written():
    box = box_with(3, 4, 5)
    (first,) = sent(box)
    assert box.acknowledged(first, 100)
    assert [box.sequence(sealed) for sealed in sent(box)] == [3, 7]
    assert (box.records, box.last_offset, box.next_sequence) == (3, 102, 12)


def test_what_comes_back_goes_out_again_in_order_one_by_one():
    box = box_with(1, 1, 1, 1)
    (head,) = sent(box)
    box.acknowledged(head, 0)
    first, second, third = sent(box)
    box.returned([second], "why", 0.0, 0.1, 1.0)
    box.returned([third, first], "why", 0.0, 0.1, 1.0)
    assert sent(box) == []
    assert sent(box, 0.2) == [first]
    box.acknowledged(first, 1)
    assert sent(box, 0.2) == [second, third]


def test_an_acknowledgement_behind_a_batch_that_came_back_does_not_let_others_pass_it():
    box = box_with(1, 1, 1, 1)
    (head,) = sent(box)
    box.acknowledged(head, 0)
    first, second, third = sent(box)
    box.returned([first], "why", 0.0, 0.1, 1.0)
    box.acknowledged(second, 2)
    assert sent(box, 1.0) == []  # the third is under way still
    box.acknowledged(third, 3)
    box.hand_over(batch(1), 0.0)
    assert sent(box, 1.0) == [first]
    assert box.acknowledged(first, 1), "it was written before those behind it"
    assert box.last_offset == 3


def test_pauses_double_and_several_answers_about_one_failure_are_one():
    box = box_with(1, 1)
    pauses = []
    for _ in range(6):
        now = box.not_before_s
        (head,) = sent(box, now)
        box.returned([head], "why", now, 0.1, 1.0)
        pauses.append(round(box.not_before_s - now, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_parts_of_a_batch_take_its_place_and_its_numbers():
    box = box_with(10, 4)
    (large,) = sent(box)
    box.split(large, [batch(6), batch(4)])
    (first,) = sent(box)
    assert (box.sequence(first), first.batch.records) == (0, 6)
    box.acknowledged(first, 0)
    assert [box.sequence(sealed) for sealed in sent(box)] == [6, 10]


def test_while_batches_are_in_flight_to_a_node_none_goes_to_another():
    box = box_with(1, 1, 1)
    (head,) = sent(box)
    box.acknowledged(head, 0)
    second = box.send(NODE)
    assert box.ready(OTHER, 0.0) is None
    assert box.ready(NODE, 0.0) is not None
    box.acknowledged(second, 1)
    assert box.ready(OTHER, 0.0) is not None


def test_numbers_begin_again_after_the_last_one():
    box = box_with(3, 4, sequence=SEQUENCES - 2)
    (first,) = sent(box)
    assert box.sequence(first) == SEQUENCES - 2
    box.acknowledged(first, 0)
    (second,) = sent(box)
    assert box.sequence(second) == 1


def test_a_producer_that_is_forgotten_begins_with_number_0_at_the_batch_that_was_refused():
    box = box_with(3, 4, 5)
    (first,) = sent(box)
    box.acknowledged(first, 0)
    second, third = sent(box)
    box.begin_anew()
    box.returned([second, third], "forgotten", 0.0, 0.0, 1.0)
    (again,) = sent(box)
    assert again is second
    assert (box.sequence(second), box.sequence(third), box.next_sequence) == (0, 4, 9)


def test_records_at_offsets_that_were_taken_before_cannot_be():
    box = box_with(10, 10)
    (first,) = sent(box)
    assert box.acknowledged(first, 100)
    (second,) = sent(box)
    assert not box.acknowledged(second, 105)


def test_a_clock_leaves_out_the_time_in_which_the_caller_is_away():
    now = 0.0
    clock = AttendedClock(lambda: now)
    now = 5.0
    clock.come()
    assert clock.now() == ABSENT_AFTER_S
    now = 100.0
    assert clock.now() == ABSENT_AFTER_S + 95.0  # here all the time
    clock.leave()
    now = 100.5
    clock.come()
    assert clock.now() == ABSENT_AFTER_S + 95.5
