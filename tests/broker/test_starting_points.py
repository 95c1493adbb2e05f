"""Where a stream starts, for each way to subscribe: the ends of the logs, offsets, timestamps."""

import pytest
from support import committed, members, name
from support.triggers import FIRST, by_partition, fill, send, send_anywhere

from spark_kafka_group.errors import OptionError
from spark_kafka_group.testing import wait_until

pytestmark = pytest.mark.usefixtures("patience")

SECOND = FIRST + 1000


WAYS = {"subscribe": "true", "subscribePattern": "false", "assign": "true"}
"""To subscribe, each with a failOnDataLoss: a start loses nothing, whatever that is."""


@pytest.fixture(params=WAYS)
def way(request):
    """A topic's name, and options that subscribe to it."""
    topic = name("start")
    result = {"subscribe": topic, "subscribePattern": f"{topic[:-1]}.", "assign": f'{{"{topic}": [0, 1, 2, 3, 4]}}'}
    return topic, {request.param: result[request.param], "failOnDataLoss": WAYS[request.param]}


def with_timestamps(kafka, topic):
    """Partitions 0 to 3 have records at both times, partition 4 only at the first."""
    kafka.create_topic(topic, partitions=5)
    at_first = enumerate([[-20], [-10], [0, 1], [10, 11], [20, 21, 22]])
    at_second = enumerate([[-21, -22], [-11, -12], [2], [12]])
    values = {(partition, FIRST): values for partition, values in at_first}
    fill(kafka, topic, values | {(partition, SECOND): values for partition, values in at_second})


def goes_on(kafka, topic, way, stream):
    """After a restart, with records that came meanwhile, and with partitions that are added."""
    stream.restart()
    assert stream.trigger() is None
    stream.restart()
    send_anywhere(kafka, topic, [30, 31, 32], 5)
    assert stream.trigger() == [30, 31, 32]
    partitions = 5
    if "assign" not in way:
        kafka.add_partitions(topic, 10)
        partitions = 10
    send_anywhere(kafka, topic, range(40, 50), partitions)
    stream.wait_for(*range(40, 50))


def test_a_stream_starts_at_the_ends_of_the_logs(kafka, way, stream_of):
    topic, subscription = way
    kafka.create_topic(topic, partitions=5)
    send(kafka, topic, 0, [-1])
    stream = stream_of(kafka, subscription, startingOffsets="latest")
    assert stream.trigger() is None
    send_anywhere(kafka, topic, [1, 2, 3], 5)
    assert stream.trigger() == [1, 2, 3]
    goes_on(kafka, topic, subscription, stream)


def test_a_stream_starts_at_the_first_records(kafka, way, stream_of):
    topic, subscription = way
    kafka.create_topic(topic, partitions=5)
    send_anywhere(kafka, topic, [1, 2, 3], 5)
    stream = stream_of(kafka, subscription, startingOffsets="earliest")
    send_anywhere(kafka, topic, [4, 5, 6], 5)
    assert stream.trigger() == [1, 2, 3, 4, 5, 6]
    goes_on(kafka, topic, subscription, stream)


def test_a_stream_starts_at_an_offset_of_each_partition(kafka, way, stream_of):
    topic, subscription = way
    kafka.create_topic(topic, partitions=5)
    fill(kafka, topic, enumerate([[-20, -21, -22], [-10, -11, -12], [0, 1, 2], [10, 11, 12], [20, 21, 22]]))
    offsets = by_partition(topic, {0: -2, 1: -1, 2: 0, 3: 1, 4: 2})
    stream = stream_of(kafka, subscription, startingOffsets=offsets)
    assert stream.trigger() == [-22, -21, -20, 0, 1, 2, 11, 12, 22]
    assert stream.positions(topic) == dict.fromkeys(range(5), 3)
    goes_on(kafka, topic, subscription, stream)


def test_a_stream_starts_at_a_timestamp_of_each_partition(kafka, way, stream_of):
    topic, subscription = way
    with_timestamps(kafka, topic)
    timestamps = by_partition(topic, dict.fromkeys(range(4), SECOND) | {4: FIRST})
    stream = stream_of(kafka, subscription, startingOffsetsByTimestamp=timestamps)
    assert stream.trigger() == [-22, -21, -12, -11, 2, 12, 20, 21, 22]
    assert stream.positions(topic) == dict.fromkeys(range(5), 3)
    goes_on(kafka, topic, subscription, stream)


def test_a_stream_starts_at_one_timestamp(kafka, way, stream_of):
    topic, subscription = way
    with_timestamps(kafka, topic)
    send(kafka, topic, 4, [23, 24], SECOND)
    stream = stream_of(kafka, subscription, startingTimestamp=SECOND)
    assert stream.trigger() == [-22, -21, -12, -11, 2, 12, 23, 24]
    assert stream.positions(topic) == dict.fromkeys(range(4), 3) | {4: 5}
    goes_on(kafka, topic, subscription, stream)


@pytest.mark.parametrize("each", [True, False], ids=["a timestamp of each partition", "one timestamp"])
def test_without_a_record_as_new_as_the_timestamp_a_stream_fails_or_starts_at_the_end(kafka, way, each, stream_of):
    topic, subscription = way
    with_timestamps(kafka, topic)
    start = (
        {"startingOffsetsByTimestamp": by_partition(topic, dict.fromkeys(range(5), SECOND))}
        if each
        else {"startingTimestamp": SECOND}
    )
    for strategy in ({}, {"startingOffsetsByTimestampStrategy": "error"}):
        with pytest.raises(OptionError, match=f"{topic}-4.*{SECOND}|{SECOND}.*{topic}-4"):
            stream_of(kafka, subscription, **start, **strategy).trigger()
    stream = stream_of(kafka, subscription, **start, startingOffsetsByTimestampStrategy="latest")
    assert stream.trigger() == [-22, -21, -12, -11, 2, 12]
    assert stream.positions(topic) == dict.fromkeys(range(5), 3)
    send(kafka, topic, 4, [23, 24, 25], SECOND)
    assert stream.trigger() == [23, 24, 25]
    assert stream.positions(topic) == dict.fromkeys(range(4), 3) | {4: 6}


def test_a_query_stopped_before_its_first_batch_starts_again(kafka, group, stream_of):
    topics = [name("start") for _ in range(2)]
    for topic, more in zip(topics, ({}, {"kafka.group.id": group}), strict=True):
        kafka.create_topic(topic)
        send(kafka, topic, 0, [0])
        stream = stream_of(kafka, {"subscribe": topic}, startingOffsets="latest", **more)
        assert stream.trigger() is None
        stream.restart()
        stream.offset = None  # Spark has none either: it logs the ends of batches
        send(kafka, topic, 0, [1])
        assert stream.trigger() is None
        send(kafka, topic, 0, [2])
        assert stream.trigger() == [2]


def test_one_start_holds_for_all_partitions_of_a_topic(kafka, stream_of):
    one, other = name("start"), name("start")
    for topic in (one, other):
        kafka.create_topic(topic, partitions=2)
        send_anywhere(kafka, topic, range(6), 2)
    offsets = f'{{"{one}": "latest", "{other}": {{"0": 1, "1": -2}}}}'
    stream = stream_of(kafka, {"subscribe": f"{one},{other}"}, startingOffsets=offsets)
    assert stream.trigger() == [1, 2, 3, 4, 5]
    with pytest.raises(OptionError, match=f"startingOffsets .*{other}"):
        stream_of(kafka, {"subscribe": one}, startingOffsets=offsets).trigger()


@pytest.mark.parametrize(
    "start",
    [
        {"startingOffsets": {0: 0, 1: 0}},
        {"startingOffsets": {0: 0, 1: 0, 2: 0, 3: 0}},
        {"startingOffsetsByTimestamp": {0: FIRST, 1: FIRST}},
        {"startingOffsetsByTimestamp": {0: FIRST, 1: FIRST, 2: FIRST, 3: FIRST}},
    ],
    ids=["offsets of too few", "offsets of too many", "timestamps of too few", "timestamps of too many"],
)
def test_a_start_must_be_given_for_the_partitions_there_are(kafka, start, stream_of):
    topic = name("start")
    kafka.create_topic(topic, partitions=3)
    fill(kafka, topic, {partition: [1] for partition in range(3)})
    ((option, values),) = start.items()
    with pytest.raises(OptionError, match=f"{option} .*{topic}-{3 if 3 in values else 2}"):
        stream_of(kafka, {"subscribe": topic}, **{option: by_partition(topic, values)}).trigger()


def test_an_offset_wins_over_nothing_and_timestamps_over_offsets(kafka, stream_of):
    topic = name("start")
    kafka.create_topic(topic)
    fill(kafka, topic, {(0, FIRST): [0], (0, SECOND): [1], (0, SECOND + 1000): [2]})
    offsets = {"startingOffsets": "earliest"}
    each = offsets | {"startingOffsetsByTimestamp": by_partition(topic, {0: SECOND})}
    for given, values in ((offsets, [0, 1, 2]), (each, [1, 2]), (each | {"startingTimestamp": SECOND + 1000}, [2])):
        assert stream_of(kafka, {"subscribe": topic}, **given).trigger() == values


class TestSubscription:
    """Which partitions a subscription means."""

    def test_assign_is_the_partitions_named_whatever_else_there_is(self, kafka, stream_of):
        topic = name("start")
        kafka.create_topic(topic, partitions=3)
        fill(kafka, topic, {partition: [partition] for partition in range(3)})
        stream = stream_of(kafka, {"assign": f'{{"{topic}": [0, 2]}}'}, startingOffsets="earliest")
        assert stream.trigger() == [0, 2]
        assert stream.positions(topic) == {0: 1, 2: 1}

    def test_a_pattern_is_found_anywhere_in_a_name_and_no_other_topic_is_read(self, kafka, stream_of):
        prefix = name("start")
        topics = [f"{prefix}-a", f"x-{prefix}-b", name("other")]
        for n, topic in enumerate(topics):
            kafka.create_topic(topic, partitions=2)
            send(kafka, topic, 1, [n])
        stream = stream_of(kafka, {"subscribePattern": f"{prefix}-."}, startingOffsets="earliest")
        assert wait_until(stream.trigger, within=30) == [0, 1]
        assert set(stream.offset) == {*topics[:2], "@group"}


class TestEnd:
    """Where a stream with an end stops to read."""

    def test_a_stream_stops_to_read_at_its_last_offsets(self, kafka, stream_of):
        topic = name("end")
        kafka.create_topic(topic, partitions=2)
        fill(kafka, topic, {0: range(5), 1: range(10, 13)})
        ends = {"endingOffsets": by_partition(topic, {0: 2, 1: -1})}
        stream = stream_of(kafka, {"subscribe": topic}, startingOffsets="earliest", **ends)
        assert stream.trigger() == [0, 1, 10, 11, 12]
        fill(kafka, topic, {0: [5], 1: [13]})
        assert stream.trigger() is None

    @pytest.mark.parametrize("each", [True, False], ids=["a timestamp of each partition", "one timestamp"])
    def test_a_stream_stops_to_read_at_the_first_record_as_new_as_a_timestamp_whenever_it_comes(
        self, kafka, each, stream_of
    ):
        topic = name("end")
        kafka.create_topic(topic, partitions=2)
        fill(kafka, topic, {(0, FIRST): [0, 1], (0, SECOND): [2], (1, FIRST): [10]})
        at = {"endingOffsetsByTimestamp": by_partition(topic, {0: SECOND, 1: SECOND})}
        ends = at if each else {"endingTimestamp": SECOND}
        stream = stream_of(kafka, {"subscribe": topic}, startingOffsets="earliest", **ends)
        assert stream.trigger() == [0, 1, 10]
        fill(kafka, topic, {(0, FIRST): [3], (1, FIRST): [11], (1, SECOND): [12]})
        assert stream.trigger() == [11]
        fill(kafka, topic, {(1, FIRST): [13]})
        assert stream.trigger() is None


class TestGroup:
    """The group of a query that names none."""

    def test_a_group_is_named_by_a_prefix_and_an_id_in_the_checkpoint(self, kafka, stream_of):
        topic, prefix = name("group"), name("prefix")
        kafka.create_topic(topic)
        send(kafka, topic, 0, [0])
        stream = stream_of(kafka, {"subscribe": topic}, startingOffsets="earliest", groupIdPrefix=prefix)
        assert stream.trigger() == [0]
        assert stream.trigger() is None
        group = f"{prefix}-{stream.offset['@group']['reader']}"
        assert committed(kafka, group) == {(topic, 0): 1}
        assert len(members(kafka, group)) == 1

    def test_a_group_that_the_user_names_has_no_prefix(self, kafka, group, stream_of):
        topic = name("group")
        kafka.create_topic(topic)
        send(kafka, topic, 0, [0])
        both = {"groupIdPrefix": "unused", "kafka.group.id": group}
        stream = stream_of(kafka, {"subscribe": topic}, startingOffsets="earliest", **both)
        assert stream.trigger() == [0]
        assert stream.trigger() is None
        assert committed(kafka, group) == {(topic, 0): 1}
