"""The lists of the Java clients' settings are those of the Kafka the tests run."""

import re
import subprocess

from support.kafka_settings import JAVA

from spark_kafka_group.options.producing import SINK_DECLARED
from spark_kafka_group.options.unsupported import UNSUPPORTED_IN_SINKS
from spark_kafka_group.testing import download

OTHERS_HERE = {
    "bootstrap.servers": "", "client.id": "groupkafka", "metadata.max.age.ms": "30000", "receive.buffer.bytes": "None",
    "send.buffer.bytes": "None", "sasl.mechanism": "None", "ssl.enabled.protocols": "('TLSv1.2', 'TLSv1.3')",
    "ssl.cipher.suites": "()", "ssl.keystore.type": "None", "ssl.truststore.type": "None",
    "transaction.timeout.ms": "None", "batch.size": "524288", "linger.ms": "100",
}  # fmt: skip
"""Defaults that are not Java's: a name, a quicker look for new partitions, the system's buffers, files' own kinds, the
longest time that brokers allow a transaction, and record batches for rows that come in thousands."""


def documented(config):
    """Of a class of Java's, each setting's default and valid values, by its name."""
    command = [download.java(), "-XX:TieredStopAtLevel=1", "-cp", f"{download.jars('kafka_2.13')}/*"]
    printed = subprocess.run(
        [*command, f"org.apache.kafka.clients.{config}"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    each = re.split(r'id="(?:consumer|producer)configs_([a-z0-9.]+)"', printed)[1:]
    return {
        name: tuple(re.findall(r"<th>(?:Default|Valid Values):</th><td>(.*?)</td>", text))
        for name, text in zip(each[::2], each[1::2], strict=True)
    }


def test_the_list_is_javas():
    names = documented("consumer.ConsumerConfig").keys()
    assert names == {name for name in JAVA if not name.startswith("internal.")}


def test_every_setting_of_javas_producer_is_an_option_with_its_default_and_bounds_or_is_refused():
    settings = documented("producer.ProducerConfig")
    refused = {name.removeprefix("kafka.") for name in UNSUPPORTED_IN_SINKS}
    options = {name.removeprefix("kafka."): field for name, (_, field) in SINK_DECLARED.items() if "kafka." in name}
    assert settings.keys() - refused == options.keys() & settings.keys()
    assert options.keys() - settings.keys() == {"proxy.url"}
    defaults = {name: str(options[name].default).lower() for name in settings.keys() - refused - OTHERS_HERE.keys()}
    javas = {name: re.sub(r" \(.*\)$", "", settings[name][0]) for name in defaults}
    assert defaults == {name: "none" if default in ("null", "") else default.lower() for name, default in javas.items()}
    assert {name: str(options[name].default) for name in OTHERS_HERE} == OTHERS_HERE
    for name in {*defaults, "batch.size", "linger.ms"}:
        assert takes(options[name], settings[name][1]), name


def takes(field, valid):
    """Whether an option takes Java's bounds, and nothing beyond."""
    parse = field.metadata["parse"]
    if numbers := re.fullmatch(r"\[(-?\d+),...(?:,(-?\d+))?\](?: or (-1))?", valid):
        low, high, other = numbers.groups()
        return (
            all(parse(number) == int(number) for number in (low, high, other) if number and low != "0")
            and not accepts(parse, str(int(low) - 1))
            and (high is None or not accepts(parse, str(int(high) + 1)))
        )
    if words := re.fullmatch(r"(?:\(case insensitive\) )?\[([\w, -]+)\]", valid):
        return all(accepts(parse, word) for word in words[1].split(", ")) and not accepts(parse, "another")
    return valid in ("", "non-empty string")


def accepts(parse, text):
    try:
        parse(text)
    except ValueError:
        return False
    return True
