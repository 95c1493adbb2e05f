"""Where reading starts and ends, as options say it."""

import pytest

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.bounds import AtTime, Bound
from spark_kafka_group.options.checks import check_for_batch
from spark_kafka_group.values.offsets import EARLIEST, LATEST, TopicPartition

A, B, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ALL = {A, B, OTHER}


def parse(**more):
    return Options.parse({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t,u"} | more)


def test_offsets_by_partition_and_by_topic():
    starting = parse(startingOffsets='{"t": {"0": 7, "1": -1}, "u": "earliest"}').reading.starting
    assert starting.positions_of(ALL) == {A: 7, B: LATEST, OTHER: EARLIEST}
    starting.check(ALL)


def test_timestamps_by_partition_and_by_topic():
    starting = parse(startingOffsetsByTimestamp='{"t": {"0": 1000, "1": 2000}, "u": 3000}').reading.starting
    assert starting.positions_of(ALL) == {A: AtTime(1000), B: AtTime(2000), OTHER: AtTime(3000)}


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_a_timestamp_for_all_goes_before_timestamps_by_partition_and_these_before_offsets(side):
    offsets = {f"{side}Offsets": "latest"}
    by_partition = offsets | {f"{side}OffsetsByTimestamp": '{"t": 5, "u": 6}'}
    for_all = by_partition | {f"{side}Timestamp": "7"}
    positions = [
        getattr(parse(**given).reading, side).positions_of([A])[A] for given in (offsets, by_partition, for_all)
    ]
    assert positions == [LATEST, AtTime(5), AtTime(7)]


def test_a_lower_ranked_option_does_not_count_at_all():
    check_for_batch(parse(startingOffsets="latest", startingTimestamp="7"))


@pytest.mark.parametrize("existing", [{A}, {A, B}], ids=["one that does not exist", "one that is not named"])
def test_partitions_that_are_named_must_be_those_that_exist(existing):
    bound = parse(subscribe="t", endingOffsets='{"t": {"0": 7, "2": 9}}').reading.ending
    with pytest.raises(OptionError, match=r"endingOffsets names (t-2, which the cluster does not|no offset for t-1)"):
        bound.check(existing)


@pytest.mark.parametrize("existing", [{A}, ALL, {A, TopicPartition("t", 9)}], ids=["fewer", "all", "later ones"])
def test_what_is_said_of_all_or_of_a_topic_holds_for_whatever_exists(existing):
    of_all = Bound("o", every=LATEST)
    of_topics = parse(startingOffsets='{"t": "latest", "u": "earliest"}').reading.starting
    for bound in (of_all, of_topics, Bound("o", group=True)):
        bound.check(existing)  # is no error
    assert of_all.positions_of(existing) == dict.fromkeys(existing, LATEST)
    assert of_topics.positions_of(existing) == {tp: LATEST if tp.topic == "t" else EARLIEST for tp in existing}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("startingOffsets", "{}", "must be group, earliest, latest or JSON"),
        ("startingOffsets", '{"t": "newest"}', "t has 'newest'"),
        ("startingOffsets", '{"t": {"x": 1}}', "'x' of t is not a partition number"),
        ("startingOffsets", '{"t": {"0": -3}}', "t-0 has -3"),
        ("startingOffsetsByTimestamp", '{"t": {"0": -1}}', "t-0 has -1"),
        ("startingOffsetsByTimestamp", "1700000000000", "must be JSON like"),
        ("startingOffsetsByTimestamp", '{"v": 5}', "names v, which subscribe does not"),
        ("startingTimestamp", "yesterday", "must be a whole number"),
        ("endingTimestamp", "-1", "must be between 0"),
        ("endingOffsets", '{"t": {"0": -2}}', "reading cannot end at earliest"),
        ("startingOffsetsByTimestampStrategy", "earliest", "must be one of error, latest"),
        ("maxTriggerDelay", "15 fortnights", "must be a duration such as 200ms, 30s or 15m"),
    ],
)
def test_a_bad_value_says_what_is_allowed(option, value, message):
    with pytest.raises(OptionError, match=message) as error:
        parse(**{option: value})
    assert option in str(error.value)


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("200ms", 200), ("30s", 30_000), ("1 h", 3_600_000), ("250", 250)]
)
def test_durations_are_written_as_in_spark(text, ms):
    assert parse(maxTriggerDelay=text).reading.max_trigger_delay_ms == ms


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("512k", 1 << 19), ("64 MB", 1 << 26), ("10g", 10 << 30), ("2Tb", 2 << 40), ("7b", 7)]
)
def test_bytes_are_written_as_in_spark(text, size):
    assert parse(maxBytesPerTrigger=text).reading.max_bytes_per_trigger == size


def test_a_smallest_batch_above_the_largest_is_refused_with_both_numbers():
    with pytest.raises(OptionError, match=r"minOffsetsPerTrigger \(20\) must not be above maxOffsetsPerTrigger \(10\)"):
        parse(minOffsetsPerTrigger="20", maxOffsetsPerTrigger="10")


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay"]
)
def test_a_batch_read_ignores_limits_of_streams_and_says_so(name, caplog):
    check_for_batch(parse(**{name: "5"}))
    assert f"{name} has no effect in a batch read" in caplog.text
