"""How a connection is made safe: Kafka's settings for TLS and SASL as values, checked without touching the network.

Nothing here knows kafka-python; ``wire`` turns a :class:`Security` into connections. Every Python process that Spark
starts imports this; modules that only TLS or SASL need are imported where they are used.
"""

from spark_kafka_group.options.security.settings import Security
from spark_kafka_group.text.foreign_text import Secret

__all__ = ["Secret", "Security"]
