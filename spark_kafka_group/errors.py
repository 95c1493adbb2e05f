"""Every error this package raises on purpose.

::

    GroupKafkaError
    ├── OptionError               (also ValueError)
    ├── SparkVersionError         (also ImportError)
    ├── MissingPackageError       (also ImportError)
    ├── WorkersPythonError
    ├── ListeningError            (also OSError)
    ├── OffsetFormatError         (also ValueError)
    ├── NoOffsetForPartitionError
    ├── OffsetConflictError
    ├── MembershipError
    │   ├── FencedError
    │   ├── MembershipLostError
    │   └── JoinTimeoutError
    ├── CommitError
    │   └── CommitTimeoutError
    ├── TransactionError
    │   ├── ProducerFencedError
    │   └── TransactionLostError
    ├── BrokerError
    │   ├── BrokerTimeoutError
    │   ├── AuthenticationError
    │   ├── AuthorizationError
    │   └── UnsupportedVersionError
    ├── RegistryError
    │   ├── RegistryTimeoutError
    │   └── UnknownSchemaError
    ├── InterceptorError
    ├── ProcessingError
    ├── HandlerStalledError
    ├── DataLossError
    ├── ReadError
    │   ├── OffsetOutOfRangeError
    │   ├── CorruptRecordError
    │   └── MalformedValueError
    ├── UnwritableRowError
    └── WriteError
        └── RecordTooLargeError

An error raised on an executor or in Spark's reader process reaches people as text only, so the text alone names the
partition, the offset and what to change.
"""

from __future__ import annotations

from spark_kafka_group.text.foreign_text import printable

NO_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""Environment variable by which Spark's Python processes send an error's text alone."""
NEW_CHECKPOINT = (
    "a new checkpoint (and a new output folder if it writes files: Spark skips batches whose numbers a folder has)"
)
"""What an error advises where a checkpoint is of no use any more. Batches of a new one are counted from 0 again."""


class GroupKafkaError(Exception):
    """Base of all errors of this package. As text, names and texts of others in it steer no terminal."""

    def __str__(self) -> str:
        return printable(super().__str__())


class OptionError(GroupKafkaError, ValueError):
    """Raised when an option is unknown, refused, malformed or contradicts another one."""


class SparkVersionError(GroupKafkaError, ImportError):
    """Raised when the package is imported with a version of pyspark that it does not work with."""


class MissingPackageError(GroupKafkaError, ImportError):
    """Raised when a feature needs a package that is not installed; the text has the pip command."""


class WorkersPythonError(GroupKafkaError):
    """Raised when the Python that Spark starts for its workers cannot import this package."""


class ListeningError(GroupKafkaError, OSError):
    """Raised when a GroupKafkaListener cannot listen on its prometheus_port."""

    def __init__(self, text: str, number: int | None = None) -> None:
        super().__init__(text)
        self.errno = number


class OffsetFormatError(GroupKafkaError, ValueError):
    """Raised when an offset in a checkpoint, or in an option, is not one this version can read."""


class NoOffsetForPartitionError(GroupKafkaError):
    """Raised when kafka.auto.offset.reset is ``none`` and the group has committed nothing for a partition."""


class OffsetConflictError(GroupKafkaError):
    """Raised when checkpoint and group disagree about an offset and option onOffsetConflict is ``fail``."""


class MembershipError(GroupKafkaError):
    """Raised when the query cannot be, or can no longer be, a member of its consumer group."""


class FencedError(MembershipError):
    """Raised when another process has joined with this query's group.instance.id."""


class MembershipLostError(MembershipError):
    """Raised when the group has a later generation; the driver joins again, so users do not see this error."""


class JoinTimeoutError(MembershipError):
    """Raised when the group could not be joined in time."""


class CommitError(GroupKafkaError):
    """Raised when the offsets of a batch that succeeded could not be committed."""


class CommitTimeoutError(CommitError):
    """Raised when brokers did not say in time whether they have a commit; a query commits again at its next trigger.

    Attributes
    ----------
    answer
        Kafka's name of the error that a broker answered last, if one did.
    """

    def __init__(self, problem: str, answer: str | None = None) -> None:
        super().__init__(problem)
        self.answer = answer


class TransactionError(GroupKafkaError):
    """Raised when an exactly-once write cannot be begun or ended; the text says what becomes of the batch."""


class ProducerFencedError(TransactionError):
    """Raised when another process has taken this write's transactional id."""


class TransactionLostError(TransactionError):
    """Raised when some transactions of a batch were committed, and others have ended without."""


class BrokerError(GroupKafkaError):
    """Raised when a broker refuses a request, or cannot be reached."""


class BrokerTimeoutError(BrokerError):
    """Raised when a broker did not answer in time.

    Attributes
    ----------
    answer
        Kafka's name of the error that a broker answered last, if one did.
    """

    def __init__(self, problem: str, answer: str | None = None) -> None:
        super().__init__(problem)
        self.answer = answer


class AuthenticationError(BrokerError):
    """Raised when authentication or encryption of a connection fails. Another attempt does not help."""


class AuthorizationError(BrokerError):
    """Raised when the user lacks a right on the group, or on a topic; the text names it."""


class UnsupportedVersionError(BrokerError):
    """Raised when a broker's version of Kafka is too old."""


LASTING = (AuthenticationError, UnsupportedVersionError)
"""Errors that stay until something is changed: connecting again does not help."""


class RegistryError(GroupKafkaError):
    """Raised when a schema registry refuses a request, or when what answers is no schema registry."""


class RegistryTimeoutError(RegistryError):
    """Raised when no schema registry has answered for as long as it is waited for."""


class UnknownSchemaError(RegistryError):
    """Raised when a schema registry does not have a schema, a subject, or a version of one."""


class InterceptorError(GroupKafkaError):
    """Raised on an executor when a user's interceptor fails."""


class ProcessingError(GroupKafkaError):
    """Raised on an executor when a record can neither be handled nor be handed on to another topic."""


class HandlerStalledError(GroupKafkaError):
    """The failure of a record whose handler did not return within stall_timeout_ms."""


class DataLossError(GroupKafkaError):
    """Raised by the driver when records that were not read are gone and failOnDataLoss is true.

    Attributes
    ----------
    condition
        Spark's name of the condition, for example ``PARTITIONS_DELETED``.
    """

    def __init__(self, condition: str, problem: str) -> None:
        super().__init__(f"[KAFKA_DATA_LOSS.{condition}] {problem}")
        self.condition = condition
        self.problem = problem

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.condition, self.problem)


class ReadError(GroupKafkaError):
    """Raised on an executor when records of a partition cannot be read.

    Attributes
    ----------
    topic, partition, offset
        Where reading stopped: ``offset`` is the first offset that was not read.
    """

    def __init__(self, topic: str, partition: int, offset: int, problem: str) -> None:
        super().__init__(f"{topic}-{partition}: offset {offset}: {problem}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.problem = problem

    def __reduce__(self) -> tuple[type, tuple[str, int, int, str]]:
        return type(self), (self.topic, self.partition, self.offset, self.problem)


class OffsetOutOfRangeError(ReadError):
    """Raised when the log no longer holds, or does not yet hold, an offset that was planned."""


class CorruptRecordError(ReadError):
    """Raised when bytes from a broker are not records: a wrong CRC, an impossible length, a codec that fails."""


class MalformedValueError(ReadError):
    """Raised when a key or a value does not fit its schema."""


class UnwritableRowError(GroupKafkaError):
    """Raised on an executor when a row cannot become a record of any topic."""


class WriteError(GroupKafkaError):
    """Raised on an executor when rows cannot be written to a partition.

    Attributes
    ----------
    topic, partition
        Where they were to be written.
    """

    def __init__(self, topic: str, partition: int, problem: str) -> None:
        super().__init__(f"{topic}-{partition}: {problem}")
        self.topic = topic
        self.partition = partition
        self.problem = problem

    def __reduce__(self) -> tuple[type, tuple[str, int, str]]:
        return type(self), (self.topic, self.partition, self.problem)


class RecordTooLargeError(WriteError):
    """Raised when a record is larger than kafka.max.request.size, or than its topic takes."""
