"""Settings of a RecordProcessor, checked: its sink, its attempts, and the pause before the next attempt (KIP-580)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.producing import SINK_DECLARED
from spark_kafka_group.options.sink_options import OF_BOTH, SinkOptions, raw_sink_options
from spark_kafka_group.options.typed_values import AVRO, PROTOBUF
from spark_kafka_group.values.error_headers import DIALECTS
from spark_kafka_group.values.retry_topics import delay_of, main_topic, retry_topic

if TYPE_CHECKING:
    from spark_kafka_group.executor.writing.row_schemas import OutputFormats

JITTER = 0.2


@dataclass(frozen=True)
class Backoff:
    """`first_ms` before the first retry, twice as long before each further one, at most `max_ms`; all ± 20 %."""

    first_ms: float
    max_ms: float

    def seconds(self, retry: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Pause before a retry; the first retry is 1."""
        doubled = min(self.max_ms, self.first_ms * 2.0 ** min(retry - 1, 64))
        return min(self.max_ms, doubled * uniform(1 - JITTER, 1 + JITTER)) / 1000


ORDERINGS = ("partition", "key", "unordered")
PLACEHOLDER = "{topic}"  # stands for the main topic


@dataclass(frozen=True)
class Settings:
    """:class:`RecordProcessor` explains most. Raises OptionError."""

    ordering: str
    threads: int
    cell_records: int
    window_cells: int
    stall_timeout_ms: int
    max_local_retries: int
    backoff: Backoff
    retry_topics: tuple[int, ...]
    dead_letter_topic: str | None
    error_headers: str
    fatal: tuple[type[Exception], ...]
    group: str | None  # for headers; None where there are no options, and so nothing is written
    topic: str | None  # for records without one
    handler_name: str
    formats: OutputFormats | None = field(default=None, repr=False)  # of keys and values that are returned as objects

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_words()
        self._check_retries()

    def _check_numbers(self) -> None:
        for name, least in (
            ("threads", 1), ("cell_records", 1), ("window_cells", 1), ("stall_timeout_ms", 1), ("max_local_retries", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise OptionError(f"{name} must be a whole number of at least {least}, and is {value!r}")
        if not 0 < self.backoff.first_ms <= self.backoff.max_ms:
            raise OptionError(
                f"retry_backoff_ms must be the first pause and the longest, both above 0, and is "
                f"({self.backoff.first_ms}, {self.backoff.max_ms})"
            )

    def _check_words(self) -> None:
        for name, value, known in (
            ("ordering", self.ordering, ORDERINGS), ("error_headers", self.error_headers, DIALECTS),
        ):  # fmt: skip
            if value not in known:
                raise OptionError(f"{name} must be one of {', '.join(known)}, and is {value!r}")

    def _check_retries(self) -> None:
        wrong = [delay for delay in self.retry_topics if not isinstance(delay, int) or delay < 1]
        if wrong or len(set(self.retry_topics)) < len(self.retry_topics):
            raise OptionError(
                f"retry_topics must be different delays in milliseconds, and are {list(self.retry_topics)}"
            )
        not_errors = [kind for kind in self.fatal if not (isinstance(kind, type) and issubclass(kind, Exception))]
        if not_errors:
            raise OptionError(f"fatal must have classes of exceptions, and {not_errors[0]!r} is not one")
        if self.hands_on and not self.writes:
            raise OptionError(
                "retry_topics and dead_letter_topic need options: those of the source, which say where the brokers are"
            )

    @property
    def writes(self) -> bool:
        """Whether records may be written at all."""
        return self.group is not None

    @property
    def with_format(self) -> tuple[str, ...]:
        """Which of ``key`` and ``value`` handlers return as objects."""
        return () if self.formats is None else tuple(column.name for column in self.formats.columns)

    @property
    def hands_on(self) -> bool:
        """Whether records whose handler fails may go to other topics."""
        return bool(self.retry_topics) or self.dead_letter_topic is not None

    def destination(self, topic: str, fatal: bool) -> tuple[str | None, int | None]:
        """Where a record of `topic` goes when its handler has failed, and for how long it waits there. None when it has
        nowhere to go."""
        main = main_topic(topic, self.retry_topics)
        if not fatal:
            waited = delay_of(topic, self.retry_topics)
            tried = 0 if waited is None else self.retry_topics.index(waited) + 1
            if tried < len(self.retry_topics):
                return retry_topic(main, self.retry_topics[tried]), self.retry_topics[tried]
        if self.dead_letter_topic is None:
            return None, None
        return self.dead_letter_topic.replace(PLACEHOLDER, main), None

    def destinations(self, topic: str) -> list[str]:
        """All topics to which records of a main topic may go."""
        names = [retry_topic(topic, delay) for delay in self.retry_topics]
        return names + ([] if self.dead_letter_topic is None else [self.dead_letter_topic.replace(PLACEHOLDER, topic)])


TOPIC, HEADERS, AUTO_REGISTER = "topic", "includeheaders", "schema.registry.auto.register"


@dataclass(frozen=True, repr=False)
class TopicsWritten:
    """How a processor writes to topics, checked.

    `source`: options of the source, which is of the same cluster.
    `sink`: checked options of the sink, with the topic for records that name none.
    `of_a_stream`, `of_a_batch`: the sink's options, without that topic: it would come before those of retries and dead
        letters. A stream waits for brokers that are away.
    `formats_of_a_stream`, `formats_of_a_batch`: how keys and values are encoded that handlers return as objects; None
        where they return bytes. A stream waits for a registry as long as for brokers.
    """

    source: Options
    sink: SinkOptions
    of_a_stream: Mapping[str, Any]
    of_a_batch: Mapping[str, Any]
    formats_of_a_stream: OutputFormats | None = None
    formats_of_a_batch: OutputFormats | None = None

    @classmethod
    def from_options(
        cls, options: Mapping[str, Any], given: Mapping[str, Any], retry_topics: Sequence[int]
    ) -> TopicsWritten:
        """From the source's options, and those that are the sink's alone. `retry_topics`: the delays of those that
        records go to. Raises OptionError."""
        for name in given:
            if name.lower() in OF_BOTH:
                raise OptionError(f"write_options has {name}, which the source has too: set it in options")
            if name.lower() == HEADERS:
                raise OptionError(f"write_options has {name}: headers are always written, so leave it out")
        source = Options.parse(options)
        _check_retries(source, retry_topics)
        checked = SinkOptions.parse(raw_sink_options(options, source.connection, given, outlives=True))
        for column in ("key", "value"):
            made = checked.writing.auto_register and checked.values.of_column(column).format in (AVRO, PROTOBUF)
            if made and checked.values.of_column(column).schema is None:
                raise OptionError(
                    f"schema.registry.auto.register needs {column}Schema, as none is made of what handlers return"
                )
        if checked.is_exactly_once and retry_topics and not source.fetching.committed_only:
            raise OptionError(
                "deliveryGuarantee=exactly-once with retry_topics needs kafka.isolation.level=read_committed in "
                "options: or the query reads from its retry topics what attempts that failed have written there"
            )
        own = {name: value for name, value in given.items() if not (name.lower() == TOPIC or _is_of_values(name))}
        stream, batch = (raw_sink_options(options, source.connection, own, outlives) for outlives in (True, False))
        if not checked.values.given():
            return cls(source, checked, stream, batch)
        from spark_kafka_group.executor.writing.row_schemas import OutputFormats, columns_of_objects

        columns = columns_of_objects(checked)
        briefly = SinkOptions.parse(raw_sink_options(options, source.connection, given, outlives=False))
        return cls(source, checked, stream, batch, OutputFormats(columns, checked), OutputFormats(columns, briefly))

    @property
    def topic(self) -> str | None:
        """For records that name none."""
        return self.sink.writing.topic

    def check_topic(self) -> None:
        """Check that this topic exists, before any handler is called. Raises BrokerError."""
        from spark_kafka_group.wire import writable_topics

        if self.topic is not None:
            writable_topics.check(self.sink)

    @property
    def group(self) -> str:
        """Of the source; empty where it has none."""
        return self.source.group.id or self.source.group.id_prefix or ""


def _is_of_values(name: str) -> bool:
    """Whether an option is of formats and schemas: rows come to the sink as bytes."""
    return name.lower() == AUTO_REGISTER or SINK_DECLARED[name.lower()][0] in ("values", "registry")


def _check_retries(source: Options, retry_topics: Sequence[int]) -> None:
    read = source.reading.retry_delays_ms
    if read and set(read) != set(retry_topics):
        raise OptionError(
            f"retry_topics is {list(retry_topics)} and the source's retryTopics {list(read)}: make them the same, as "
            f"the query must read the topics that failed records go to"
        )
