"""Options of the sink of a RecordProcessor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.sent_on import OF_BOTH, raw_sink_options
from spark_kafka_group.options.sink_options import SinkOptions

TOPIC, HEADERS = "topic", "includeheaders"


@dataclass(frozen=True, repr=False)
class TopicsWritten:
    """How a processor writes to topics, checked.

    Attributes
    ----------
    source
        Options of the source, which is of the same cluster.
    sink
        Checked options of the sink, with the topic for records that name none.
    of_a_stream, of_a_batch
        The sink's options, without that topic: it would come before those of retries and dead letters. A stream waits
        for brokers that are away.
    """

    source: Options
    sink: SinkOptions
    of_a_stream: Mapping[str, Any]
    of_a_batch: Mapping[str, Any]

    @classmethod
    def from_options(
        cls, options: Mapping[str, Any], given: Mapping[str, Any], retry_topics: Sequence[int]
    ) -> TopicsWritten:
        """From the source's options, and those that are the sink's alone.

        Parameters
        ----------
        retry_topics
            The delays of those that records go to.

        Raises
        ------
        OptionError
        """
        for name in given:
            if name.lower() in OF_BOTH:
                raise OptionError(f"write_options has {name}, which the source has too: set it in options")
            if name.lower() == HEADERS:
                raise OptionError(f"write_options has {name}: headers are always written, so leave it out")
        source = Options.parse(options)
        _check_retries(source, retry_topics)
        checked = SinkOptions.parse(raw_sink_options(options, source.connection, given, outlives=True))
        if checked.is_exactly_once and retry_topics and not source.fetching.committed_only:
            raise OptionError(
                "deliveryGuarantee=exactly-once with retry_topics needs kafka.isolation.level=read_committed in "
                "options: or the query reads from its retry topics what attempts that failed have written there"
            )
        own = {name: value for name, value in given.items() if name.lower() != TOPIC}
        stream, batch = (raw_sink_options(options, source.connection, own, outlives) for outlives in (True, False))
        return cls(source, checked, stream, batch)

    @property
    def topic(self) -> str | None:
        """For records that name none."""
        return self.sink.writing.topic

    def check_topic(self) -> None:
        """Check that this topic exists, before any handler is called.

        Raises
        ------
        BrokerError
        """
        from spark_kafka_group.wire import writable_topics

        if self.topic is not None:
            writable_topics.check(self.sink)

    @property
    def group(self) -> str:
        """Of the source; empty where it has none."""
        return self.source.group.id or self.source.group.id_prefix or ""


def _check_retries(source: Options, retry_topics: Sequence[int]) -> None:
    read = source.reading.retry_delays_ms
    if read and set(read) != set(retry_topics):
        raise OptionError(
            f"retry_topics is {list(retry_topics)} and the source's retryTopics {list(read)}: make them the same, as "
            f"the query must read the topics that failed records go to"
        )
