"""A PySpark source that makes a query a real member of a Kafka consumer group: ``format("groupkafka")``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CorruptRecordError,
    DataLossError,
    FencedError,
    GroupKafkaError,
    HandlerStalledError,
    InterceptorError,
    JoinTimeoutError,
    ListeningError,
    MembershipError,
    MissingPackageError,
    NoOffsetForPartitionError,
    OffsetConflictError,
    OffsetFormatError,
    OffsetOutOfRangeError,
    OptionError,
    ProcessingError,
    ReadError,
    RecordTooLargeError,
    SparkVersionError,
    WorkersPythonError,
    WriteError,
)
from spark_kafka_group.spark.installation import require_supported, warn_without_java

require_supported()  # an older pyspark lacks modules that the next line imports
warn_without_java()

from spark_kafka_group.source import GroupKafkaDataSource  # noqa: E402

if TYPE_CHECKING:
    from spark_kafka_group.batch.group_batch import GroupBatch, group_batch
    from spark_kafka_group.batch.read_where import read_where
    from spark_kafka_group.listener import GroupKafkaListener
    from spark_kafka_group.processing.processor import Processed, RecordProcessor
    from spark_kafka_group.processing.record import ProducerRecord, Record

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
    "HandlerStalledError",
    "InterceptorError",
    "JoinTimeoutError",
    "ListeningError",
    "MembershipError",
    "MissingPackageError",
    "NoOffsetForPartitionError",
    "OffsetConflictError",
    "OffsetFormatError",
    "OffsetOutOfRangeError",
    "OptionError",
    "Processed",
    "ProcessingError",
    "ProducerRecord",
    "ReadError",
    "Record",
    "RecordProcessor",
    "RecordTooLargeError",
    "SparkVersionError",
    "WorkersPythonError",
    "WriteError",
    "__version__",
    "group_batch",
    "read_where",
]

__version__ = "0.1.0"

# Every Python worker that runs a task imports this package, and needs none of these.
_LATER = {
    "GroupBatch": "batch.group_batch",
    "GroupKafkaListener": "listener",
    "Processed": "processing.processor",
    "ProducerRecord": "processing.record",
    "Record": "processing.record",
    "RecordProcessor": "processing.processor",
    "group_batch": "batch.group_batch",
    "read_where": "batch.read_where",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(globals() | _LATER)
