"""Options of the sink: what is taken, adjusted as Java's producer adjusts it, ignored, and refused with advice."""

import ast
import dataclasses
import pickle
import re

import pytest
from support.source_tree import modules, nodes

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.producing import SINK_DECLARED, SINK_SECTIONS, Producing, Writing
from spark_kafka_group.options.sections import DECLARED
from spark_kafka_group.options.sink_options import SPARKS_OWN, SinkOptions
from spark_kafka_group.options.unsupported import UNSUPPORTED_IN_SINKS, why_unsupported_in_sinks

REQUIRED = {"kafka.bootstrap.servers": "localhost:9092"}


def parsed(**more):
    return SinkOptions.parse(REQUIRED | more)


def refusal(given):
    with pytest.raises(OptionError) as raised:
        SinkOptions.parse(REQUIRED | given)
    return str(raised.value)


def test_brokers_alone_are_enough_and_nothing_else_is_then_given():
    options = parsed()
    assert options.given() == ["kafka.bootstrap.servers"]
    assert options.writing.topic is None
    assert options.producing.enable_idempotence
    assert refusal({"kafka.bootstrap.servers": None}).startswith("kafka.bootstrap.servers is None")
    with pytest.raises(OptionError, match=r"^option kafka.bootstrap.servers is missing: "):
        SinkOptions.parse({"topic": "t"})


def test_names_are_taken_in_any_case_and_values_arrive_in_tasks():
    options = SinkOptions.parse({
        "KAFKA.BOOTSTRAP.SERVERS": "localhost:1", "TOPIC": "orders", "includeheaders": "false", "kafka.LINGER.ms": 7,
        "kafka.compression.type": "LZ4", "kafka.acks": "-1", "kafka.compression.gzip.level": "-1",
    })  # fmt: skip
    arrived = pickle.loads(pickle.dumps(options))
    assert arrived == options
    assert (options.writing.topic, options.writing.include_headers) == ("orders", False)
    assert (options.producing.linger_ms, options.producing.compression_type, options.producing.acks) == (
        7,
        "lz4",
        "all",
    )
    assert options.client.connection is options.connection


def test_sparks_own_keys_are_ignored():
    own = dict.fromkeys(SPARKS_OWN, "x") | {"checkpointLocation": "/tmp/c", "queryName": "q"}
    found = SinkOptions.parse(REQUIRED | own)
    assert found.given() == parsed().given()
    assert dataclasses.replace(found, checkpoint=None) == parsed()


def test_the_checkpoint_is_known_where_the_write_has_it():
    assert parsed().checkpoint is None
    assert SinkOptions.parse(REQUIRED | {"checkpointLocation": "/tmp/c"}).transactions.checkpoint == "/tmp/c"


@pytest.mark.parametrize("name", [name for name in DECLARED if name not in SINK_DECLARED])
def test_an_option_of_the_source_is_refused_by_the_sink(name):
    assert refusal({name: "1"}).lower().startswith(f"option {name} is not supported: ")


@pytest.mark.parametrize("name", [name for name in SINK_DECLARED if name not in DECLARED])
def test_an_option_of_the_sink_is_refused_by_the_source(name):
    with pytest.raises(OptionError, match=rf"(?i)^option {name} is not supported: "):
        Options.parse(REQUIRED | {"subscribe": "t", name: "1"})


def test_a_setting_that_neither_has_is_of_the_other_side_where_only_that_refuses_it():
    assert refusal({"kafka.max.poll.records": "1"}) == (
        "option kafka.max.poll.records is not supported: it is for reading, and this query writes: leave it out"
    )
    with pytest.raises(OptionError, match=r"^option kafka.retries is not supported: it is for writing, and this query"):
        Options.parse(REQUIRED | {"subscribe": "t", "kafka.retries": "1"})


@pytest.mark.parametrize("name", ["client.rack", "partitioner.rack.aware", "buffer.memory.allocation.strategy"])
def test_settings_new_in_the_producer_of_kafka_4_4_are_refused_in_words(name):
    for given in (f"kafka.{name}", name):
        assert re.match(rf"option {given} is not supported: .*: leave it out$", refusal({given: "x"}))
        assert "for reading" not in refusal({given: "x"})


def test_the_other_sides_option_is_named_where_there_is_one():
    assert refusal({"subscribe": "t"}) == (
        "option subscribe is not supported: it is for reading, and this query writes: take topic"
    )
    assert refusal({"startingoffsets": "latest"}).startswith("option startingOffsets is not supported: ")
    with pytest.raises(OptionError, match=r"^option topic is .*: it is for writing, and this query reads: take subsc"):
        Options.parse(REQUIRED | {"topic": "t"})


def test_an_unknown_option_has_the_nearest_name():
    assert refusal({"topik": "t"}) == "option topik is not known; the nearest is topic"
    assert refusal({"acks": "all"}) == "option acks is not known; the nearest is kafka.acks"
    assert refusal({"zzzzzzzz": "t"}).endswith("docs/writing.md has all options")


def test_a_value_is_refused_with_its_bounds():
    assert refusal({"topic": "a/b"}).startswith("topic (a/b) 'a/b' is not a topic name")
    assert refusal({"kafka.acks": "2"}) == "kafka.acks (2) must be one of all, 1, 0"
    assert refusal({"kafka.compression.lz4.level": "18"}) == "kafka.compression.lz4.level (18) must be between 1 and 17"
    assert refusal({"kafka.max.request.size": "0"}) == "kafka.max.request.size (0) must be between 1 and 2147483647"
    assert refusal({"kafka.batch.size": "-1"}) == "kafka.batch.size (-1) must be between 0 and 2147483647"


def test_idempotence_is_off_where_other_settings_rule_it_out_and_an_error_where_it_was_asked_for():
    assert not parsed(**{"kafka.acks": "1"}).producing.enable_idempotence
    assert not parsed(**{"kafka.max.in.flight.requests.per.connection": "6"}).producing.enable_idempotence
    asked = {"kafka.enable.idempotence": "true"}
    assert refusal(asked | {"kafka.acks": "1"}) == (
        "kafka.enable.idempotence needs kafka.acks=all, and it is 1: change one of them"
    )
    assert "per.connection (6) to be at most 5" in refusal(asked | {"kafka.max.in.flight.requests.per.connection": "6"})


def test_the_default_time_of_delivery_grows_with_that_of_a_request_and_a_given_one_is_checked():
    more = {"kafka.request.timeout.ms": "200000", "kafka.linger.ms": "10"}
    assert parsed(**more).producing.delivery_timeout_ms == 200_010
    assert parsed(**{"kafka.request.timeout.ms": "9"}).producing.delivery_timeout_ms == 120_000
    assert refusal(more | {"kafka.delivery.timeout.ms": "200009"}) == (
        "kafka.delivery.timeout.ms (200009) must not be below kafka.linger.ms (10) and kafka.request.timeout.ms "
        "(200000) together"
    )


def test_defaults_give_way_to_settings():
    assert parsed().producing.batch_size == 524_288
    assert parsed(**{"kafka.buffer.memory": "16383"}).producing.batch_size == 16_383
    assert parsed().producing.linger_ms == 100
    as_long = {"kafka.request.timeout.ms": "30000", "kafka.delivery.timeout.ms": "30000"}
    assert parsed(**as_long).producing.linger_ms == 0
    assert parsed(**as_long | {"kafka.delivery.timeout.ms": "30007"}).producing.linger_ms == 7
    assert "kafka.linger.ms (1)" in refusal(as_long | {"kafka.linger.ms": "1"})


def test_settings_that_contradict_each_other_are_refused():
    assert refusal({"kafka.buffer.memory": "16383", "kafka.batch.size": "16384"}) == (
        "kafka.batch.size (16384) must not be above kafka.buffer.memory (16383)"
    )
    assert refusal({"kafka.request.timeout.ms": "540000"}).startswith("kafka.request.timeout.ms (540000) must be below")
    assert refusal({"kafka.sasl.mechanism": "PLAIN"}).startswith("kafka.sasl.mechanism needs kafka.security.protocol")


def test_exactly_once_needs_a_transactional_id_and_acknowledgements_of_all():
    assert "needs kafka.transactional.id" in refusal({"deliveryGuarantee": "exactly-once"})
    given = {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": "w"}
    assert "needs kafka.acks=all" in refusal(given | {"kafka.acks": "1"})
    assert "needs kafka.acks=all" in refusal(given | {"kafka.enable.idempotence": "false"})
    assert parsed(**given).transactions.prefix == "w"
    assert refusal({"kafka.transactional.id": "w"}).startswith("kafka.transactional.id needs deliveryGuarantee=exactly")
    assert parsed(deliveryGuarantee="AT-LEAST-ONCE") == parsed()


def test_exactly_once_needs_each_batch_in_sparks_log_and_decisions_in_a_topic_of_their_own():
    given = {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": "w"}
    late = {"asyncprogresstrackingenabled": "true", "_asyncProgressTrackingOverrideSinkSupportCheck": "true"}
    assert refusal(given | late) == (
        "deliveryGuarantee (exactly-once) needs Spark to log each micro-batch: leave asyncProgressTrackingEnabled out"
    )
    assert parsed(**late) == parsed()
    assert parsed(**given, asyncProgressTrackingEnabled="false") == parsed(**given)
    assert refusal(given | {"topic": "d", "decisionTopic": "d"}) == (
        "topic (d) is also where decisions are kept: name another topic with decisionTopic"
    )


def test_nothing_is_both_known_and_refused_and_reasons_send_to_options_that_are_known():
    assert not UNSUPPORTED_IN_SINKS.keys() & SINK_DECLARED.keys()
    assert not [name for name in SINK_DECLARED if why_unsupported_in_sinks(name)]
    words = {
        word.rstrip(",;:.").split("=")[0]
        for reason in UNSUPPORTED_IN_SINKS.values()
        for word in reason.split()
        if word.startswith("kafka.")
    }
    assert words - {"kafka.client.rack"} <= SINK_DECLARED.keys()


@pytest.mark.parametrize("option", [field.metadata["name"] for _, field in SINK_DECLARED.values()])
def test_every_option_takes_a_hostile_text_or_says_in_one_sentence_what_is_wrong_with_it(option):
    for text in ("A" * 1_000_000, "9" * 1_000_000, "," * 100_000, "a\0b", "a\udc80b", "\x1b[2J\u202e", ""):
        given = {} if not option.startswith("kafka.s") else {
            "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER",
        }  # fmt: skip
        problem = problem_with(REQUIRED | given | {option: text})
        assert len(problem) < 5_000
        assert problem.isprintable()


def problem_with(given):
    try:
        SinkOptions.parse(given)
    except OptionError as error:
        return str(error)
    return ""


def test_every_option_of_writing_is_used_beyond_its_declaration():
    using = [tree for file, tree in modules().items() if file.name not in {"writing.py", "producing.py"}]
    taken = {node.attr for tree in using for node in nodes(tree) if isinstance(node, ast.Attribute)}
    by_name = {"compression_gzip_level", "compression_lz4_level", "compression_zstd_level"}  # in executor/write
    fields = [*dataclasses.fields(Writing), *dataclasses.fields(Producing)]
    assert {field.name for field in fields} - taken == by_name


def test_no_option_shows_its_value_in_the_repr():
    assert repr(parsed(topic="orders")) == "SinkOptions(topic, kafka.bootstrap.servers)"


def test_every_option_is_documented():
    assert all(len(field.metadata["doc"]) > 20 for _, field in SINK_DECLARED.values())
    assert set(SINK_SECTIONS) == {
        "writing", "producing", "transacting", "values", "registry", "connection", "security"
    }  # fmt: skip


URL, SCHEMA = {"schema.registry.url": "http://localhost:8081"}, {"valueSchema": '"int"'}
AVRO, JSON, PROTOBUF = ({"valueFormat": kind} for kind in ("avro", "json", "protobuf"))
DESCRIPTORS = PROTOBUF | {"valueDescriptorFile": "f", "valueMessage": "M"}
CONTRADICTORY_FORMATS = {
    "valueSchema needs valueFormat, json, avro or protobuf": SCHEMA,
    "keyFraming needs keyFormat, json, avro or protobuf": {"keyFraming": "none"},
    "valueSubject needs valueFormat, json, avro or protobuf": {"valueSubject": "s", "valueFormat": "string"},
    "valueFormat=avro needs schema.registry.url, or valueSchema": AVRO,
    "valueSchema has no meaning where JSON is written without schema.registry.url: leave it out": JSON | SCHEMA,
    "valueFraming needs schema.registry.url": JSON | {"valueFraming": "confluent"},
    "valueSubject needs schema.registry.url": AVRO | SCHEMA | {"valueSubject": "s"},
    "valueSchema and valueSchemaVersion are both given: one of them": AVRO | SCHEMA | URL | {"valueSchemaVersion": 1},
    "schema.registry.auto.register and valueSchemaVersion are both given: one of them": (
        AVRO | URL | {"valueSchemaVersion": 1, "schema.registry.auto.register": True}
    ),
    "schema.registry.auto.register needs schema.registry.url": {"schema.registry.auto.register": True},
    "schema.registry.auto.register needs valueSchema, a JSON Schema, as none is made of the column's type: give it, or "
    "valueFraming=none": JSON | URL | {"schema.registry.auto.register": True},
    "schema.registry.url needs valueFormat or keyFormat, json, avro or protobuf": URL,
    "valueFormat=protobuf needs schema.registry.url, valueDescriptorFile or valueSchema": PROTOBUF,
    "valueMessage needs valueFormat=protobuf": AVRO | URL | {"valueMessage": "M"},
    "valueDescriptorFile needs valueMessage, the name of the message": PROTOBUF | {"valueDescriptorFile": "f"},
    "valueDescriptorFile and valueSchema are both given: one of them": DESCRIPTORS | SCHEMA,
    "valueDescriptorFile needs valueFraming=none, as no registry has descriptors: or give valueSchema, the text of the "
    ".proto file": DESCRIPTORS | URL,
    "keyFraming needs schema.registry.url": {
        "keyFormat": "protobuf",
        "keyDescriptorFile": "f",
        "keyMessage": "M",
        "keyFraming": "confluent",
    },
    "timeZone needs valueFormat or keyFormat, json": AVRO | URL | {"timeZone": "UTC"},
    "schema.registry.max.retries needs schema.registry.url": JSON | {"schema.registry.max.retries": 1},
}


@pytest.mark.parametrize("message", CONTRADICTORY_FORMATS)
def test_formats_that_make_no_sense_are_refused(message):
    assert refusal(CONTRADICTORY_FORMATS[message]) == message


def test_formats_are_taken_and_no_policy_for_rows_that_do_not_fit():
    options = parsed(**AVRO, **URL, **{"schema.registry.auto.register": "true", "keyFormat": "string"})
    assert (options.values.value_format, options.values.key_format) == ("avro", "string")
    assert options.writing.auto_register
    assert refusal({"onMalformedValue": "null"}) == (
        "option onMalformedValue is not supported: it is for reading, and this query writes: a row that does not fit "
        "its schema is always an error"
    )
