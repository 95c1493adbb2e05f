"""Options: names, types, defaults, and errors before anything touches the network."""

import ast
import dataclasses
import pickle
import re

import pytest
from support.source_tree import PACKAGE, modules, nodes

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.reading.read import brokers_for
from spark_kafka_group.options import DECLARED, PARTITION_BYTES, SECTIONS, ClientOptions, Options
from spark_kafka_group.options.checks import check_for_batch
from spark_kafka_group.options.unsupported import UNSUPPORTED
from spark_kafka_group.source import GroupKafkaReader, GroupKafkaStreamReader
from spark_kafka_group.values.offsets import TopicPartition

REQUIRED = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def parse(**changes):
    return Options.parse(REQUIRED | changes)


def test_names_are_case_insensitive():
    assert parse(MAXOFFSETSPERTRIGGER="5").reading.max_offsets_per_trigger == 5


def test_words_are_taken_however_they_are_capitalized_and_mean_one_thing():
    found = {parse(onCorruptRecord=word).reading.on_corrupt_record for word in ("deadLetter", "DEADLETTER")}
    assert found == {"deadLetter"}
    with pytest.raises(OptionError, match=r"onCorruptRecord \(dlq\) must be one of fail, skip, deadLetter"):
        parse(onCorruptRecord="dlq")
    assert parse().reading.on_corrupt_record == "fail"


def test_defaults_are_kafkas():
    options = parse()
    assert options.group.session_timeout_ms == 45_000
    assert options.group.heartbeat_interval_ms == 3_000
    assert options.group.max_poll_interval_ms == 300_000
    assert options.connection.request_timeout_ms == 30_000
    assert (options.fetching.min_bytes, options.fetching.max_wait_ms) == (1, 500)
    assert (options.fetching.max_bytes, options.fetching.partition_max_bytes) == (52_428_800, None)
    assert PARTITION_BYTES == 1_048_576
    assert options.fetching.check_crcs


def test_several_topics_and_servers():
    options = parse(subscribe=" a, b,a", **{"kafka.bootstrap.servers": "h1:1, [::1]:2"})
    assert options.reading.topics == ("a", "b")
    assert options.connection.bootstrap_servers == "h1:1,[::1]:2"


def test_starting_offsets_as_json():
    options = parse(startingOffsets='{"orders": {"0": 23, "1": -2}}')
    assert dict(options.reading.starting.positions()) == {"orders-0": 23, "orders-1": -2}


def test_a_missing_required_option_is_named():
    with pytest.raises(OptionError, match=r"option kafka.bootstrap.servers is missing"):
        Options.parse({"subscribe": "orders"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "none is"),
        ({"subscribe": "a", "subscribePattern": "b"}, "subscribe and subscribePattern are"),
        ({"subscribePattern": "b", "assign": '{"a": [0]}'}, "subscribePattern and assign are"),
    ],
)
def test_one_of_the_three_ways_to_subscribe_must_be_given(given, message):
    with pytest.raises(
        OptionError, match=f"exactly one of subscribe, subscribePattern, assign must be given; {message}"
    ):
        Options.parse({"kafka.bootstrap.servers": "localhost:9092"} | given)


def test_a_pattern_and_partitions():
    servers = {"kafka.bootstrap.servers": "localhost:9092"}
    pattern = Options.parse(servers | {"subscribePattern": "ord.*"}).reading.subscription
    assert pattern.includes("orders")
    assert pattern.includes("reorders")
    whole = Options.parse(servers | {"subscribePattern": "(?i)^ORD[a-z]+$"}).reading.subscription
    assert whole.includes("orders")
    assert not whole.includes("reorders")
    named = Options.parse(servers | {"assign": '{"orders": [0, 2]}'}).reading.subscription
    assert named.partitions == {TopicPartition("orders", 0), TopicPartition("orders", 2)}
    assert named.manual


def test_classes_of_the_users_own_must_be_importable_and_have_the_methods():
    for name, value, message in [
        ("rebalanceListener", "no.such:Thing", "could not be imported: ModuleNotFoundError"),
        ("rebalanceListener", "collections:OrderedDict", "on_partitions_revoked"),
        ("interceptors", "collections:OrderedDict", "at least one of on_consume, on_commit"),
        ("interceptors", "collections", "must be module:Class"),
        ("kafka.partition.assignment.strategy", "fair", "must be range, roundrobin"),
        ("kafka.partition.assignment.strategy", "collections:OrderedDict", "assign"),
    ]:
        with pytest.raises(OptionError) as error:
            parse(**{name: value})
        assert name in str(error.value)
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [
        ("kafka.sesion.timeout.ms", "kafka.session.timeout.ms"),
        ("session.timeout.ms", "kafka.session.timeout.ms"),
        ("group.id", "kafka.group.id"),
        ("maxOffsetPerTriger", "maxOffsetsPerTrigger"),
        ("startingOffset", "startingOffsets"),
    ],
)
def test_an_unknown_option_is_refused_and_the_nearest_known_one_named(unknown, nearest):
    with pytest.raises(OptionError, match=re.escape(f"option {unknown} is not known; the nearest is {nearest}")):
        parse(**{unknown: "1"})


@pytest.mark.parametrize("unknown", ["whatever", "mergeFiles", "kafka.selector", "kafka.x", ""])
def test_where_no_known_option_is_near_the_error_says_where_all_are(unknown):
    with pytest.raises(
        OptionError, match=r"is not known, and none has a name like it: docs/options\.md has all options"
    ):
        parse(**{unknown: "1"})


@pytest.mark.parametrize(
    ("given", "shown"),
    [("startingoffset", "startingOffset"), ("faildataloss", "failDataLoss"), ("whatever", "whatever")],
)
def test_an_unknown_option_that_spark_hands_over_in_lower_case_has_the_capitals_of_the_nearest(given, shown):
    with pytest.raises(OptionError, match=f"^option {shown} is not known"):
        parse(**{given: "1"})


@pytest.mark.parametrize("name", [*UNSUPPORTED, "key.deserializer", "enable.auto.commit"])
def test_a_setting_without_meaning_here_is_refused_with_the_reason(name):
    with pytest.raises(OptionError, match=f"option {re.escape(name)} is not supported: .{{20,}}"):
        parse(**{name: "true"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kafka.bootstrap.servers", "localhost", "host:port"),
        ("subscribe", "", "empty topic name"),
        ("subscribe", "a,,b", "stray comma"),
        ("subscribe", "a b", "not a topic name"),
        ("kafka.group.id", " ", "must not be empty"),
        ("pausePartitions", "orders-0", "must be JSON like"),
        ("pausePartitions", '{"orders": [-1]}', "not a partition number"),
        ("pausePartitions", '{"other": [0]}', "names other, which subscribe does not"),
        ("pauseFile", "/no/such/directory/pause.json", "directory that exists"),
        ("eventLog", "/", "must be a file in a directory that exists"),
        ("eventLog", "/tmp/" + "x" * 300, "must be a file in a directory that exists: File name too long"),
        ("eventLog", "/tmp/a\0b", "must be a file in a directory that exists"),
        ("onOffsetConflict", "newest", "must be one of auto, checkpoint, group, fail"),
        ("kafka.partition.assignment.strategy", "range,,sticky", "stray comma"),
        ("startingOffsets", "newest", "must be group, earliest, latest or JSON"),
        ("startingOffsets", '{"orders": 1', "delimiter: line 1 column 13"),
        ("startingOffsets", '{"orders": {"0": "x"}}', "orders-0 has 'x'"),
        ("startingOffsets", '{"orders": ', "JSON"),
        ("startingOffsets", '{"other": {"0": 1}}', "names other, which subscribe does not"),
        (
            "startingOffsets",
            '{"orders": {"0": 9223372036854775808}}',
            "orders-0: an offset is at most 9223372036854775807",
        ),
        ("startingOffsets", '{"orders": {"0": 5, "00": 7}}', "'00' of orders is not a partition number"),
        ("startingOffsets", '{"orders": {"0": 5, "0": 7}}', "has '0' 2 times"),
        ("startingOffsets", '{"orders": {"0": 5}, "orders": {"1": 7}}', "has 'orders' 2 times"),
        ("startingOffsets", '{"orders": {"2147483648": 5}}', "'2147483648' of orders is not a partition number"),
        ("startingOffsetsByTimestamp", '{"orders": 9223372036854775808}', "a timestamp is at most 9223372036854775807"),
        ("endingOffsetsByTimestamp", '{"orders": {"1": 1e3}}', "orders-1 has 1000.0"),
        ("pausePartitions", '{"orders": [2147483648]}', "2147483648 of orders is not a partition number"),
        ("kafka.receive.buffer.bytes", "-2", "must be between -1 and"),
        ("kafka.send.buffer.bytes", "0", "must be -1 (the system's) or between 1 and"),
        ("endingOffsets", "earliest", "must be latest or JSON"),
        ("endingOffsets", '{"orders": {"0": -2}}', "cannot end at earliest"),
        ("kafka.auto.offset.reset", "smallest", "must be one of latest, earliest, none"),
        ("maxOffsetsPerTrigger", "0", "must be between 1"),
        ("maxOffsetsPerTrigger", "many", "must be a whole number"),
        ("maxBytesPerTrigger", "0", "must be between 1 and 9223372036854775807 bytes"),
        ("maxBytesPerTrigger", "8388608t", "must be between 1 and 9223372036854775807 bytes"),
        ("maxBytesPerTrigger", "-1", "must be a number of bytes such as 1048576, 512k, 64m or 10g"),
        ("maxBytesPerTrigger", "1.5g", "must be a number of bytes such as 1048576, 512k, 64m or 10g"),
        ("includeHeaders", "yes", "must be true or false"),
        ("columns", "value,,key", "has an empty name: look for a stray comma"),
        ("columns", "value,size", "has 'size', which is no column: take some of key, value, topic, partition, offset"),
        ("generation", "always", "must be one of auto, batch, stable"),
        ("recordsPerTask", "0", "must be between 1"),
        ("maxTasks", "0", "must be between 1"),
        ("decoder", "rust", "must be one of auto, c, python"),
        ("kafka.group.instance.id", "a b", "letters, digits"),
        ("kafka.fetch.max.bytes", "3000000000", "must be between"),
        ("retryTopics", "0", "must be milliseconds, above 0"),
        ("retryTopics", "1m", "must be milliseconds, above 0"),
        ("retryTopics", "60000,,600000", "'' is not"),
        ("retryTopics", "60000, 5,060000", "has 60000 2 times"),
    ],
)
def test_a_bad_value_names_the_option_the_value_and_what_is_allowed(name, value, message):
    with pytest.raises(OptionError) as error:
        parse(**{name: value})
    assert name in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"kafka.heartbeat.interval.ms": "20000", "kafka.session.timeout.ms": "10000"},
            "kafka.heartbeat.interval.ms (20000) must be below kafka.session.timeout.ms (10000)",
        ),
        (
            {"kafka.fetch.max.wait.ms": "5000", "kafka.request.timeout.ms": "5000"},
            "kafka.fetch.max.wait.ms (5000) must be below kafka.request.timeout.ms (5000)",
        ),
        (
            {"kafka.request.timeout.ms": "540000"},
            "kafka.request.timeout.ms (540000) must be below kafka.connections.max.idle.ms (540000)",
        ),
        ({"kafka.group.instance.id": "me"}, "kafka.group.instance.id (me) needs kafka.group.id"),
        ({"subscribe": "t" * 240, "retryTopics": "600000"}, "-retry-600000, and a topic's name has at most 249"),
    ],
)
def test_options_that_contradict_each_other_are_refused_with_both_values(changes, message):
    with pytest.raises(OptionError, match=re.escape(message)):
        parse(**changes)


@pytest.mark.parametrize(("name", "value"), [("startingOffsets", "earlest"), ("pausePartitions", "orders")])
def test_a_word_that_is_wrong_is_not_read_as_json(name, value):
    with pytest.raises(OptionError, match=r"must be .*JSON like") as raised:
        parse(**{name: value})
    assert "line 1" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"startingOffsets": "group"}, "needs kafka.group.id"),
        ({"startingOffsets": "latest"}, "empty batch"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "empty batch"),
        ({"onOffsetConflict": "group"}, "onOffsetConflict is an option of streams"),
        ({"kafka.transactional.id": "sink"}, "kafka.transactional.id is an option of streams"),
        ({"pausePartitions": '{"orders": [0]}'}, "pausePartitions is an option of streams"),
        ({"retryTopics": "60000"}, "retryTopics is an option of streams"),
    ],
)
def test_a_batch_read_refuses_options_for_streams(changes, message):
    with pytest.raises(OptionError, match=message):
        check_for_batch(parse(**changes))


def test_retry_topics_are_subscribed_to_and_have_none_of_their_own():
    subscription = parse(subscribe="a,b-retry-5,a-retry-7", retryTopics="5, 7").reading.subscription
    assert subscription.topics == ("a", "b-retry-5", "a-retry-7", "a-retry-5")
    assert subscription.named() == set(subscription.topics)
    assert parse(subscribe="a,b").reading.subscription.topics == ("a", "b")
    parse(retryTopics="5", pausePartitions='{"orders-retry-5": [0]}', startingOffsets='{"orders-retry-5": {"0": 3}}')
    by_hand = {"kafka.bootstrap.servers": "h:1", "assign": '{"a": [0]}'}
    with pytest.raises(OptionError, match="retryTopics is not for assign"):
        Options.parse(by_hand | {"retryTopics": "5"})
    with pytest.raises(OptionError, match=r"kafka\.transactional\.id is not for it; take subscribe"):
        Options.parse(by_hand | {"kafka.transactional.id": "sink"})


@pytest.mark.parametrize(
    ("pattern", "read"),
    [
        ("^a$", {"a", "a-retry-5"}),
        ("a.*", {"a", "a-retry-5", "a-retry-9", "a-retry-5-retry-5", "ba", "ba-retry-5"}),
        ("^a-retry-5$", {"a-retry-5"}),
        ("^a-dlt", {"a-dlt"}),
    ],
)
def test_retry_topics_of_what_a_pattern_finds_are_read_and_dead_letter_topics_of_it_are_not(pattern, read):
    subscription = Options.parse(
        {"kafka.bootstrap.servers": "h:1", "subscribePattern": pattern, "retryTopics": "5"}
    ).reading.subscription
    topics = {"a", "a-retry-5", "a-retry-9", "a-retry-5-retry-5", "a-dlt", "a-retry-5-dlt", "ba", "ba-retry-5", "b"}
    assert {topic for topic in topics if subscription.includes(topic)} == read


def test_no_pattern_finds_the_topic_of_decisions():
    servers = {"kafka.bootstrap.servers": "h:1", "kafka.group.id": "g"}
    everything = Options.parse(servers | {"subscribePattern": ".*", "kafka.transactional.id": "t"}).reading.subscription
    assert everything.includes("orders")
    assert not everything.includes("__groupkafka_decisions")
    named = Options.parse(servers | {"subscribe": "__groupkafka_decisions"}).reading.subscription
    assert named.includes("__groupkafka_decisions")


@pytest.mark.parametrize("subscription", [{"subscribe": "orders,d"}, {"subscribePattern": "."}])
def test_a_query_does_not_read_the_decisions_that_it_writes(subscription):
    given = {"kafka.bootstrap.servers": "h:1", "kafka.group.id": "g", "decisionTopic": "d"} | subscription
    name = next(iter(subscription))
    with pytest.raises(OptionError, match=rf"decisionTopic \(d\) is read by this query too, through {name}: "):
        Options.parse(given | {"kafka.transactional.id": "t"})


def test_the_largest_offset_and_timestamp_and_the_systems_buffers_are_taken():
    named = parse(startingOffsets='{"orders": {"0": 9223372036854775807}}', **{"kafka.receive.buffer.bytes": "-1"})
    assert dict(named.reading.starting.positions()) == {"orders-0": 2**63 - 1}
    parse(startingOffsetsByTimestamp='{"orders": 9223372036854775807}')
    assert named.connection.receive_buffer_bytes is None
    assert parse(**{"kafka.send.buffer.bytes": "-1"}).connection.send_buffer_bytes is None
    assert parse(**{"kafka.send.buffer.bytes": "65536"}).connection.send_buffer_bytes == 65536


def test_repr_shows_names_but_no_values():
    assert repr(parse(**{"kafka.group.id": "hidden"})) == "Options(kafka.bootstrap.servers, kafka.group.id, subscribe)"


def test_every_option_is_documented():
    assert all(len(field.metadata["doc"]) > 20 for _, field in DECLARED.values())


CLIENTS = [field.name for field in dataclasses.fields(ClientOptions)]


def another(field):
    """A value that is not the default, which nothing but tests would take."""
    if isinstance(field.default, bool):
        return not field.default
    return field.default + 7 if isinstance(field.default, int) else f"not the default of {field.metadata['name']}"


def section(kind):
    return kind(**{field.name: another(field) for field in dataclasses.fields(kind)})


def everything():
    """Options of which none is at its default."""
    return Options(**{name: section(kind) for name, kind in SECTIONS.items()})


def test_sections_have_all_options_and_no_two_have_one_name():
    options = everything()
    assert {name.lower() for name in options.given()} == DECLARED.keys()
    assert sum(len(getattr(options, name).given()) for name in SECTIONS) == len(DECLARED)
    assert {field.name for field in dataclasses.fields(Options)} == SECTIONS.keys() | {"typed"}


def test_tasks_get_every_option_and_their_connections_each_that_clients_have():
    options = everything()
    for kind in (GroupKafkaStreamReader, GroupKafkaReader):
        arrived = pickle.loads(pickle.dumps(kind(options)))._options
        assert arrived == options
        kept = brokers_for(arrived).options
        for name in CLIENTS:
            assert getattr(kept, name).given() == [f.metadata["name"] for f in dataclasses.fields(SECTIONS[name])]


def test_connections_are_shared_by_those_who_differ_in_what_they_read_or_in_which_group():
    options = everything()
    for name, kind in SECTIONS.items():
        other = dataclasses.replace(options, **{name: kind()})
        assert (brokers_for(other) is brokers_for(options)) == (name not in CLIENTS), name


def test_every_option_is_used_beyond_its_declaration():
    declaring = set((PACKAGE / "options").glob("*.py")) - {
        PACKAGE / "options/reading.py",
        PACKAGE / "options/typed_values.py",
        PACKAGE / "options/schema_registry.py",
    }
    using = [tree for file, tree in modules().items() if file not in declaring]
    taken = {node.attr for tree in using for node in nodes(tree) if isinstance(node, ast.Attribute)}
    unused = [
        name for name, (_, field) in DECLARED.items() if field.name not in taken and not field.metadata["passed_on"]
    ]
    assert unused == [
        "schema.registry.ssl.truststore.type",
        "schema.registry.ssl.keystore.type",
        "kafka.ssl.truststore.type",
        "kafka.ssl.keystore.type",
    ]  # by getattr, in options/checks


URL, SCHEMA = {"schema.registry.url": "http://localhost:8081"}, {"valueSchema": "id INT"}
AVRO, JSON, PROTOBUF = {"valueFormat": "avro"}, {"valueFormat": "json"}, {"valueFormat": "protobuf"}
CONTRADICTORY_FORMATS = {
    "valueSchema needs valueFormat, json, avro or protobuf": SCHEMA,
    "keyFraming needs keyFormat, json, avro or protobuf": {"keyFraming": "none"},
    "valueSubject has no meaning with valueFormat=json: remove it": JSON | SCHEMA | URL | {"valueSubject": "s"},
    "valueSchemaVersion has no meaning with valueFormat=json: remove it": JSON | SCHEMA | {"valueSchemaVersion": 1},
    "valueMessage needs valueFormat=protobuf": JSON | SCHEMA | {"valueMessage": "M"},
    "valueSchema and valueSubject are both given: one of them": AVRO | SCHEMA | URL | {"valueSubject": "s"},
    "valueSchema and valueSchemaVersion are both given: one of them": PROTOBUF | SCHEMA | {"valueSchemaVersion": 1},
    "valueDescriptorFile needs valueMessage, the name of the message": PROTOBUF | {"valueDescriptorFile": "f"},
}


@pytest.mark.parametrize("message", CONTRADICTORY_FORMATS)
def test_formats_that_make_no_sense_are_refused(message):
    with pytest.raises(OptionError) as refused:
        parse(**CONTRADICTORY_FORMATS[message])
    assert str(refused.value) == message
