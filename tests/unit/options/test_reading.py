"""Options that Spark's own kafka source has: its names, values, defaults, refusals and which wins over which."""

import pytest

from spark_kafka_group import GroupKafkaDataSource, OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import EARLIEST, LATEST, TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
TOPIC = SERVERS | {"subscribe": "t"}
T0 = TopicPartition("t", 0)


def load_stream(options):
    """readStream.load(), and the start of a query."""
    reader = GroupKafkaDataSource(options).streamReader(None)
    reader.getDefaultReadLimit()  # an error is one of its calls: Spark hides those of streamReader()
    return reader


def load_batch(options):
    """read.load(), and an action, as far as it needs no broker."""
    return GroupKafkaDataSource(options).reader(None)


@pytest.mark.parametrize("case", [str.upper, str.lower, str.title])
@pytest.mark.parametrize(
    "name",
    [
        "kafkaConsumer.pollTimeoutMs",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "minPartitions",
        "maxRecordsPerPartition",
        "partition.metadata.cache.ttl.ms",
    ],
)
def test_names_are_case_insensitive(name, case):
    assert Options.parse(TOPIC | {case(name): "1111"}).value(name) == 1111


def test_defaults_are_sparks():
    options = Options.parse(TOPIC)
    assert options.reading.fail_on_data_loss
    assert not options.reading.include_headers
    assert options.reading.max_trigger_delay_ms == 15 * 60 * 1000
    assert (options.fetching.offset_retries, options.fetching.offset_retry_interval_ms) == (3, 1000)
    assert options.fetching.poll_timeout_ms == 120_000
    assert options == Options.parse(TOPIC | {"partition.metadata.cache.ttl.ms": "-1"})


@pytest.mark.parametrize(("text", "ms"), [("5s", 5000), ("200ms", 200), ("15m", 900_000), ("1h", 3_600_000), ("7", 7)])
def test_a_delay_is_written_as_spark_writes_it(text, ms):
    assert Options.parse(TOPIC | {"maxTriggerDelay": text}).reading.max_trigger_delay_ms == ms


@pytest.mark.parametrize("load", [load_stream, load_batch])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "subscribe, subscribePattern, assign"),
        ({"subscribe": "t", "subscribePattern": "t.*"}, "exactly one"),
        ({"subscribe": "t", "assign": '{"a": [0]}'}, "exactly one"),
        ({"assign": ""}, "assign"),
        ({"assign": "t-0"}, "assign"),
        ({"subscribe": ""}, "subscribe"),
        ({"subscribe": " , "}, "subscribe"),
        ({"subscribePattern": " "}, "subscribePattern"),
    ],
)
def test_what_is_read_must_be_said_in_one_of_three_ways(load, options, message):
    with pytest.raises(OptionError, match=message):
        load(SERVERS | options)


@pytest.mark.parametrize("load", [load_stream, load_batch])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("minPartitions", ["a", "1.0", "0", "-1"]),
        ("maxRecordsPerPartition", ["a", "1.0", "0", "-1"]),
        ("maxOffsetsPerTrigger", ["many"]),
        ("minOffsetsPerTrigger", ["many"]),
        ("maxTriggerDelay", ["soon"]),
        ("failOnDataLoss", ["maybe"]),
        ("fetchOffset.numRetries", ["often"]),
        ("partition.metadata.cache.ttl.ms", ["0", "-2", "-100", "1s"]),
        ("startingTimestamp", ["yesterday", "1.5"]),
        ("endingTimestamp", ["tomorrow"]),
        ("startingOffsetsByTimestamp", ["1000", '{"t": {"0": "noon"}}', "{"]),
        ("endingOffsetsByTimestamp", ["latest"]),
        ("startingOffsetsByTimestampStrategy", ["earliest"]),
        ("startingOffsets", ["first", '{"t": [0]}', '{"t": {"0": 1.5}}']),
        ("endingOffsets", ["last"]),
        ("kafka.isolation.level", ["read_everything"]),
    ],
)
def test_a_value_that_means_nothing_is_refused_and_named(load, name, values):
    for value in values:
        with pytest.raises(OptionError, match=rf"^{name} \("):
            load(TOPIC | {name: value})


@pytest.mark.parametrize("load", [load_stream, load_batch])
@pytest.mark.parametrize(
    "name", ["enable.auto.commit", "interceptor.classes", "key.deserializer", "value.deserializer"]
)
def test_settings_of_kafkas_consumer_that_would_change_what_is_read_are_not_supported(load, name):
    with pytest.raises(OptionError, match=f"kafka.{name} is not supported"):
        load(TOPIC | {f"kafka.{name}": "someValue"})


@pytest.mark.parametrize("load", [load_stream, load_batch])
def test_the_reset_policy_is_one_of_kafkas(load):
    for policy in ("earliest", "latest", "none"):
        load(TOPIC | {"kafka.auto.offset.reset": policy})
    with pytest.raises(OptionError, match=r"kafka.auto.offset.reset \(someValue\) must be one of"):
        load(TOPIC | {"kafka.auto.offset.reset": "someValue"})


@pytest.mark.parametrize("load", [load_stream, load_batch])
def test_brokers_must_be_named(load):
    with pytest.raises(OptionError, match="option kafka.bootstrap.servers is missing"):
        load({"subscribe": "t"})


@pytest.mark.parametrize("load", [load_stream, load_batch])
def test_a_minimum_above_the_limit_is_refused_with_both(load):
    with pytest.raises(OptionError, match=r"minOffsetsPerTrigger \(20\).*maxOffsetsPerTrigger \(15\)"):
        load(TOPIC | {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"})


def test_words_are_case_insensitive():
    options = Options.parse(TOPIC | {"startingOffsets": " earLiEst ", "endingOffsets": "laTest"})
    assert options.reading.starting.positions_of([T0]) == {T0: EARLIEST}
    assert options.reading.ending.positions_of([T0]) == {T0: LATEST}
    strategy = {"startingOffsetsByTimestampStrategy": "LATEST", "startingTimestamp": "5"}
    assert Options.parse(TOPIC | strategy).reading.starting_by_timestamp_strategy == "latest"


def test_partitions_and_offsets_are_json():
    named = Options.parse(SERVERS | {"assign": '{"topicA": [0, 1], "topicB": [4, 6]}'})
    assert sorted(named.reading.assigned) == [("topicA", 0), ("topicA", 1), ("topicB", 4), ("topicB", 6)]
    offsets = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
    starting = Options.parse(SERVERS | {"subscribe": "topicA,topicB", "startingOffsets": offsets}).reading.starting
    tps = [TopicPartition("topicA", 0), TopicPartition("topicA", 1), TopicPartition("topicB", 0)]
    assert starting.positions_of(tps) == dict(zip(tps, [23, LATEST, EARLIEST], strict=True))


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_one_timestamp_wins_over_one_for_each_partition_and_both_over_offsets(side):
    word = {"starting": "earliest", "ending": "latest"}[side]
    given = TOPIC | {f"{side}Offsets": word}
    names = []
    for more in ({}, {f"{side}OffsetsByTimestamp": '{"t": {"0": 5}}'}, {f"{side}Timestamp": "7"}):
        given |= more
        names.append(getattr(Options.parse(given).reading, side).option)
    assert names == [f"{side}Offsets", f"{side}OffsetsByTimestamp", f"{side}Timestamp"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets .*latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets .*t-0"),
        ({"endingOffsets": "earliest"}, "endingOffsets .*earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets .*t-0"),
    ],
)
def test_a_batch_read_neither_starts_at_latest_nor_ends_at_earliest(options, message):
    with pytest.raises(OptionError, match=message):
        load_batch(TOPIC | options)


@pytest.mark.parametrize("timestamp", [{"startingTimestamp": "5"}, {"startingOffsetsByTimestamp": '{"t": {"0": 5}}'}])
def test_a_batch_read_may_start_at_latest_where_a_timestamp_wins(timestamp):
    load_batch(TOPIC | {"startingOffsets": "latest"} | timestamp)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_limits_of_triggers_are_a_warning_in_a_batch_read(name, caplog):
    load_batch(TOPIC | {name: "5"})
    assert name in caplog.text
