"""Every setting of Java's consumer and of kafka-python's is an option here, or is refused with advice."""

import pytest
from kafka import KafkaConsumer
from support.kafka_settings import JAVA

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import OPTION_NAMES, Options
from spark_kafka_group.options.unsupported import UNSUPPORTED, why_unsupported

REQUIRED = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
PYTHON = {name.replace("_", "."): name for name in KafkaConsumer.DEFAULT_CONFIG}
PYTHON_OBJECTS = {
    "kafka.client": "a class of kafka-python's, which wire/ has its own of",
    "selector": "a class of Python's, of which the best one is taken",
    "socket.options": "tuples of numbers; those that matter are kafka.receive.buffer.bytes and kafka.send.buffer.bytes",
    "ssl.context": "an ssl.SSLContext, which is made of the kafka.ssl options",
}
"""Settings that no option's text can express, by their names with dots. They are unknown."""


@pytest.mark.parametrize("name", sorted(JAVA | PYTHON.keys()))
def test_each_setting_of_kafkas_consumers_is_known_or_refused_with_the_reason(name):
    option = f"kafka.{name}"
    if name in PYTHON_OBJECTS:
        with pytest.raises(OptionError, match=f"^option {option} is not known"):
            Options.parse(REQUIRED | {option: "x"})
    elif option not in OPTION_NAMES:
        for given in (option, name, option.upper()):
            with pytest.raises(OptionError, match=f"option {given} is not supported: .{{20,}}") as raised:
                Options.parse(REQUIRED | {given: "x-value"})
            assert "x-value" not in str(raised.value)


def test_nothing_is_both_known_and_refused():
    assert not UNSUPPORTED.keys() & OPTION_NAMES
    assert set(UNSUPPORTED) == {name.lower() for name in UNSUPPORTED}
    assert not [name for name in OPTION_NAMES if why_unsupported(name)]


def test_reasons_send_to_options_that_are_known():
    words = {
        word.rstrip(",;:.") for reason in UNSUPPORTED.values() for word in reason.split() if word.startswith("kafka.")
    }
    assert words
    assert {word.split("=")[0] for word in words} <= OPTION_NAMES


def test_what_is_internal_to_the_java_client_is_refused():
    with pytest.raises(OptionError, match=r"kafka.internal.leave.group.on.close is not supported: it is internal to"):
        Options.parse(REQUIRED | {"kafka.internal.leave.group.on.close": "false"})


def test_what_is_passed_on_is_what_kafka_pythons_connections_know():
    from kafka.net.manager import KafkaConnectionManager

    given = {
        "kafka.socket.connection.setup.timeout.ms": "77", "kafka.socket.connection.setup.timeout.max.ms": "88",
        "kafka.proxy.url": "http://u:p@h:1",
    }  # fmt: skip
    passed_on = Options.parse(REQUIRED | given).connection.passed_on()
    assert passed_on.keys() <= {*KafkaConsumer.DEFAULT_CONFIG, *KafkaConnectionManager.DEFAULT_CONFIG}
    assert {77, 88, "http://u:p@h:1"} <= set(passed_on.values())
