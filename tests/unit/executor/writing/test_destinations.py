"""Where rows go: to the partition of their column, to that of their key, or to one that is shared for a while."""

import random
from array import array
from collections import Counter

import pyarrow as pa
import pytest

from spark_kafka_group.errors import UnwritableRowError, WriteError
from spark_kafka_group.executor.encode import load
from spark_kafka_group.executor.encode.encoder_contract import NO_PARTITION
from spark_kafka_group.executor.writing.destinations import TopicDestinations, rows_of_topics
from spark_kafka_group.executor.writing.write import binary_column

encoder = load("auto")
KEYS = [b"a", b"b", b"c", b"d"]


def rows_with(keys):
    return encoder.Rows(len(keys), binary_column(pa.array(keys, pa.binary())), None)


def chosen(destinations, keys, given=None, indices=None, by_key=True):
    """The partition of each place."""
    column = None if given is None else pa.array(given, pa.int32())
    each = destinations.partitions(encoder, rows_with(keys), indices, column, by_key)
    return {place: partition for partition, places in each for place in memoryview(places).cast("B").cast("i")}


def test_a_key_has_its_partition_and_no_key_has_none():
    keys = [*KEYS, None]
    javas = array("i", bytes(encoder.partitions_of_keys(rows_with(KEYS), None, 3)))
    assert chosen(TopicDestinations("t", (1, 1, 1), 100), keys) == dict(enumerate([*javas, NO_PARTITION]))
    assert set(chosen(TopicDestinations("t", (1, 1, 1), 100), keys, by_key=False).values()) == {NO_PARTITION}


def test_a_partition_that_a_row_names_comes_before_its_key():
    destinations = TopicDestinations("t", (1, 1, 1), 100)
    assert chosen(destinations, ["a", "b", None], given=[2, 1, 0]) == {0: 2, 1: 1, 2: 0}
    of_a, of_b = chosen(destinations, ["a", "b"]).values()
    assert chosen(destinations, ["a", "b", None], given=[None, of_b, None]) == {0: of_a, 1: of_b, 2: NO_PARTITION}


def test_a_partition_of_another_topic_is_taken_modulo_where_a_row_names_no_other():
    destinations = TopicDestinations("t", (1, 1, 1), 100)
    origin = pa.array([7, 7, 2**31 - 1, None, None], pa.int32())
    given = pa.array([0, None, None, 2, None], pa.int32())
    assert destinations.named(given, origin).to_pylist() == [0, 1, (2**31 - 1) % 3, 2, None]
    assert destinations.named(None, origin).to_pylist() == [1, 1, (2**31 - 1) % 3, None, None]
    nowhere = pa.array([None], pa.int32())
    assert destinations.named(given, None) is destinations.named(given, nowhere) is given
    found = chosen(destinations, ["a"] * 5, given=destinations.named(given, origin).to_pylist())
    (of_a,) = chosen(destinations, ["a"]).values()
    assert found == {0: 0, 1: 1, 2: (2**31 - 1) % 3, 3: 2, 4: of_a}
    with pytest.raises(WriteError, match="t--5: a row names this partition in its column originPartition: make it 0"):
        destinations.named(None, pa.array([1, -5], pa.int32()))


def test_rows_of_one_topic_among_others_keep_their_places():
    destinations = TopicDestinations("t", (1, 1, 1), 100)
    indices = memoryview(array("i", [1, 3]))
    assert chosen(destinations, ["a"] * 5, given=[0, 1, 0, 2, 0], indices=indices) == {1: 1, 3: 2}


def test_a_column_that_is_a_slice_of_a_larger_one_is_read_from_its_beginning():
    keys, given = pa.array(["x", "a", "b"]).slice(1), pa.array([7, 2, 1], pa.int32()).slice(1)
    destinations = TopicDestinations("t", (1, 1, 1), 100)
    rows = encoder.Rows(2, binary_column(keys), None)
    found = {partition: list(places) for partition, places in destinations.partitions(encoder, rows, None, given, True)}
    assert found == {1: [1], 2: [0]}
    assert destinations.outside(given, None) is None


@pytest.mark.parametrize("wrong", [3, 2**31 - 1])
def test_a_partition_that_the_topic_does_not_have_is_an_error_with_its_number_and_how_many_there_are(wrong):
    destinations = TopicDestinations("orders", (1, 1, 1), 100)
    assert destinations.outside(pa.array([0, wrong, None, 2], pa.int32()), None) == wrong
    assert destinations.outside(pa.array([0, wrong], pa.int32()), array("i", [0])) is None
    assert str(destinations.refuse(wrong)) == (
        f"orders-{wrong}: a row names this partition in its column partition, and the topic has 3 partitions, 0 to 2: "
        "correct the column, or give the topic more partitions"
    )
    destinations.update((1,) * 4)
    assert (destinations.outside(pa.array([3], pa.int32()), None)) is None


def test_a_partition_below_0_is_an_error_that_does_not_advise_to_add_partitions():
    destinations = TopicDestinations("orders", (1, 1, 1), 100)
    assert destinations.outside(pa.array([0, -1, None, 2], pa.int32()), None) == -1
    assert str(destinations.refuse(-1)) == (
        "orders--1: a row names this partition in its column partition: make it 0 or above, or null where the key is "
        "to choose"
    )


def test_rows_without_a_key_share_a_partition_for_so_many_bytes_and_then_another():
    destinations = TopicDestinations("t", (1, 2, 3), 100, random.Random(7).choice)
    first = destinations.shared
    destinations.add_shared(60)
    assert destinations.shared == first
    destinations.add_shared(40)
    assert destinations.shared != first
    second = destinations.shared
    destinations.change_shared()
    assert destinations.shared != second


def test_partitions_are_shared_equally_and_those_without_a_leader_not_at_all():
    destinations = TopicDestinations("t", (1, None, 2, 2, None), 1, random.Random(7).choice)
    counted = Counter()
    for _ in range(3_000):
        counted[destinations.shared] += 1
        destinations.add_shared(1)
    assert counted.keys() == {0, 2, 3}
    assert min(counted.values()) > 900
    destinations.update((1, 1, None, None, None))
    assert {destinations.shared for _ in range(20)} <= {0, 1}


def test_without_any_leader_there_is_still_a_partition():
    destinations = TopicDestinations("t", (None, None), 1)
    assert destinations.shared in (0, 1)
    destinations.change_shared()


def test_rows_are_parted_by_topic():
    topics = pa.array(["b", "a", "b", "b"])
    assert {topic: list(places) for topic, places in rows_of_topics(encoder, topics)} == {"b": [0, 2, 3], "a": [1]}
    assert list(rows_of_topics(encoder, pa.array(["a", "a"]))) == [("a", None)]


def test_a_row_without_a_topic_or_with_an_impossible_one_is_an_error():
    with pytest.raises(UnwritableRowError, match="^a row has no topic, as its column topic is null: give each row one"):
        list(rows_of_topics(encoder, pa.array(["a", None])))
    with pytest.raises(UnwritableRowError, match="^column topic has 'a/b', which is not a topic name: letters, digits"):
        list(rows_of_topics(encoder, pa.array(["a", "a/b"])))
    not_text = pa.StringArray.from_buffers(1, pa.py_buffer(array("i", [0, 2])), pa.py_buffer(b"\xff\xfe"))
    with pytest.raises(UnwritableRowError, match="which is not a topic name"):
        list(rows_of_topics(encoder, not_text))
