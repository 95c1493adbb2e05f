"""Sends dead letters back to the topics they came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.writing.sink_columns import OutputRow, OutputRows, arrow_batch, sink_columns
from spark_kafka_group.options import ClientOptions, Options
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.options.sink_options import sink_options
from spark_kafka_group.processing.record import REQUIRED, records_of
from spark_kafka_group.spark.spark_processes import map_in_arrow
from spark_kafka_group.values.error_headers import SOURCE, Origin, exception_of, handler_of, origin_of, without
from spark_kafka_group.values.retry_topics import RETRY, is_internal, sends_dead_letters_to

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SCHEMA = "topic string, exception string, outcome string, records bigint"
WANTED, FILTERED, UNKNOWN, RAW = "wanted", "filtered", "not a dead letter", "unreadable batch"
INTERNAL, FOREIGN = "internal topic", "dead letters of that topic go elsewhere"
GONE = "retry topic that does not exist"
REFUSED = (INTERNAL, FOREIGN)
"""A producer may have chosen the topic in the headers, so that a replay writes to it with other rights than its own."""
NOWHERE = Origin("", -1, -1, -1, -1)


@dataclass(frozen=True)
class Letters:
    """A number of dead letters with the same origin, exception and outcome.

    Attributes
    ----------
    topic, exception
        Their origin, and the class of their handler's exception; None if their headers do not say.
    outcome
        ``wanted``, or why they stay: ``filtered``, ``not a dead letter`` (its headers do not say where it came from),
        ``unreadable batch`` (option onCorruptRecord left it out; it is not a record), ``internal topic`` (its headers
        name one of Kafka's own), ``dead letters of that topic go elsewhere`` (its headers name a topic whose dead
        letters go to another topic, and the caller has not named it), ``retry topic that does not exist``.
    """

    topic: str | None
    exception: str | None
    outcome: str
    records: int


@dataclass(frozen=True)
class Wanted:
    """Which letters to send back; None is any.

    Attributes
    ----------
    topic
        Their origin. None: the topic whose dead letters go to the topic of the letter, and its retry topics.
    exception
        Name of the exception's class, with its module or without.
    """

    topic: str | None = None
    exception: str | None = None

    def outcome(self, found_in: str, origin: Origin, exception: str | None, handler: str | None) -> str:
        if origin is NOWHERE:
            return UNKNOWN
        if handler == SOURCE:
            return RAW
        named = exception is not None and self.exception in (exception, exception.rpartition(".")[2])
        if self.topic not in (None, origin.topic) or not (self.exception is None or named):
            return FILTERED
        if is_internal(origin.topic):
            return INTERNAL
        return WANTED if self.topic is not None or sends_dead_letters_to(found_in, origin.topic) else FOREIGN


def survey(df: DataFrame, wanted: Wanted, options: Mapping[str, str]) -> list[Letters]:
    """Count the letters, without sending any.

    Parameters
    ----------
    df
        A batch read of dead-letter topics, with headers.
    options
        The source's, for brokers and security.

    Raises
    ------
    BrokerError
    """
    return _run(df, wanted, Options.parse(options), send=False)


def send_back(df: DataFrame, wanted: Wanted, options: Mapping[str, str]) -> list[Letters]:
    """Send the wanted ones to topic and partition they came from, with key, value and headers as they were then.

    All are acknowledged when this returns. When it fails some may have been sent.

    Parameters
    ----------
    options
        The source's, for brokers and security.

    Raises
    ------
    pyspark.errors.PySparkException
        With BrokerError or WriteError, when a topic does not exist any more, or brokers refuse.
    """
    return _run(df, wanted, Options.parse(options), send=True)


def _run(df: DataFrame, wanted: Wanted, options: Options, send: bool) -> list[Letters]:
    missing = [name for name in (*REQUIRED, "headers") if name not in df.columns]
    if missing:
        raise OptionError(
            f"the DataFrame of dead letters lacks {', '.join(missing)}: read it with groupkafka and includeHeaders=true"
        )
    task = partial(_task, wanted, _retry_topics(options), options if send else None)
    rows = map_in_arrow(df, task, SCHEMA)
    totals = rows.groupBy("topic", "exception", "outcome").sum("records").orderBy("topic", "exception", "outcome")
    return [Letters(*row) for row in totals.collect()]


def _retry_topics(options: Options) -> frozenset[str]:
    """Those of the cluster: headers may name any, and one that is looked for in vain holds up all other letters."""
    from spark_kafka_group.wire import LogClient

    client = LogClient(options)
    try:
        return frozenset(tp.topic for tp in client.partitions(Subscription(pattern=".-retry-[1-9][0-9]*$")))
    finally:
        client.close()


def _task(
    wanted: Wanted, retry_topics: frozenset[str], options: ClientOptions | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    counts: Counter[tuple[str | None, str | None, str]] = Counter()
    rows = _rows(wanted, retry_topics, batches, counts)
    if options is None:
        for _ in rows:
            pass
    else:
        from spark_kafka_group.executor.writing.write import write

        write(map(arrow_batch, rows), sink_options(options, outlives=False), sink_columns())
    groups: list[list[Any]] = [[key[i] for key in counts] for i in range(3)] + [list(counts.values())]
    yield pa.RecordBatch.from_arrays(
        [pa.array(c, pa.string()) for c in groups[:3]] + [pa.array(groups[3], pa.int64())],
        names=["topic", "exception", "outcome", "records"],
    )


def _rows(
    wanted: Wanted,
    retry_topics: frozenset[str],
    batches: Iterable[pa.RecordBatch],
    counts: Counter[tuple[str | None, str | None, str]],
) -> Iterator[list[OutputRow]]:
    """The wanted letters as rows for their topics, many at a time; `counts` has all letters."""
    output = OutputRows()
    for record in chain.from_iterable(map(records_of, batches)):
        origin = origin_of(record.headers, NOWHERE)
        exception = exception_of(record.headers)
        outcome = wanted.outcome(record.topic, origin, exception, handler_of(record.headers))
        if outcome == WANTED and RETRY.fullmatch(origin.topic) and origin.topic not in retry_topics:
            outcome = GONE
        counts[origin.topic or None, exception, outcome] += 1
        if outcome == WANTED:
            headers = without(record.headers)
            output.add([OutputRow(origin.topic, record.key, record.value, headers, origin_partition=origin.partition)])
            if output.due:
                yield output.take_rows()
    if rows := output.take_rows():
        yield rows
