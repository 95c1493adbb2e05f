"""A PySpark source that makes a query a real member of a Kafka consumer group: ``format("groupkafka")``."""

from spark_kafka_group.batch import GroupBatch, group_batch
from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CorruptRecordError,
    DataLossError,
    FencedError,
    GroupKafkaError,
    InterceptorError,
    JoinTimeoutError,
    MembershipError,
    NoOffsetForPartitionError,
    OffsetConflictError,
    OffsetFormatError,
    OffsetOutOfRangeError,
    OptionError,
    ReadError,
)
from spark_kafka_group.listener import GroupKafkaListener
from spark_kafka_group.source import GroupKafkaDataSource
from spark_kafka_group.where import read_where

__all__ = [
    "BrokerError",
    "BrokerTimeoutError",
    "CommitError",
    "CorruptRecordError",
    "DataLossError",
    "FencedError",
    "GroupBatch",
    "GroupKafkaDataSource",
    "GroupKafkaError",
    "GroupKafkaListener",
    "InterceptorError",
    "JoinTimeoutError",
    "MembershipError",
    "NoOffsetForPartitionError",
    "OffsetConflictError",
    "OffsetFormatError",
    "OffsetOutOfRangeError",
    "OptionError",
    "ReadError",
    "group_batch",
    "read_where",
]
