"""GroupKafkaListener, which runs in the process that starts queries."""

from spark_kafka_group.listener.listener import GroupKafkaListener

__all__ = ["GroupKafkaListener"]
