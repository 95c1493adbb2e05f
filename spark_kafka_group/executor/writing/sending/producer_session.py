"""A producer of this Python worker: its id, and how far it has counted in each partition.

Tasks of a worker take it over from each other. Brokers keep something for each producer id in each partition for a day,
so an id for each task would fill their memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_kafka_group.values.offsets import TopicPartition


@dataclass
class ProducerSession:
    """Without transactions.

    Attributes
    ----------
    sequences
        Of the next record of each partition.
    """

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
