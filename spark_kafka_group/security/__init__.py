"""How a connection is made safe: Kafka's settings for TLS and SASL as values, checked without touching the network.

Nothing here knows kafka-python; ``wire`` turns a :class:`Security` into connections.
"""

from spark_kafka_group.security.checks import check
from spark_kafka_group.security.jaas import LoginModule
from spark_kafka_group.security.secret import Secret
from spark_kafka_group.security.settings import Security

__all__ = ["LoginModule", "Secret", "Security", "check"]
