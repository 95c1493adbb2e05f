"""The list of the Java consumer's settings is that of the Kafka the tests run."""

import re
import subprocess

from kafka_settings import JAVA

from spark_kafka_group.testing import download


def test_the_list_is_javas():
    command = [download.java(), "-XX:TieredStopAtLevel=1", "-cp", f"{download.jars('kafka_2.13')}/*"]
    printed = subprocess.run(
        [*command, "org.apache.kafka.clients.consumer.ConsumerConfig"], capture_output=True, text=True, check=True,
        timeout=60,
    ).stdout  # fmt: skip
    documented = set(re.findall(r'id="consumerconfigs_([a-z0-9.]+)"', printed))
    assert documented == {name for name in JAVA if not name.startswith("internal.")}
