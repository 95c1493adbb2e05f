"""Writes a task's rows: Arrow, record batches, brokers. Connections and metadata stay for the worker's next task."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import pyarrow as pa

from spark_kafka_group.executor import encode
from spark_kafka_group.executor.encode import CODECS, BatchBuilder, Compression, EncodedBatch, Encoder, Rows
from spark_kafka_group.executor.encode.encoder_contract import NO_PARTITION, BinaryColumn, Buffer, HeadersColumn
from spark_kafka_group.executor.writing.destinations import TopicDestinations, by_key, rows_of_topics
from spark_kafka_group.executor.writing.sender import Sender, Written
from spark_kafka_group.executor.writing.sending.stamping import Transaction
from spark_kafka_group.options.producing import SYSTEMS_LEVEL
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.planned_transactions import RowsWritten
from spark_kafka_group.wire.leaders import Leaders
from spark_kafka_group.wire.writable_topics import WritableTopics

if TYPE_CHECKING:
    from spark_kafka_group.executor.writing.sink_columns import SinkColumns
    from spark_kafka_group.options.producing import Producing


_topics: WeakKeyDictionary[Leaders[Any], dict[float, WritableTopics]] = WeakKeyDictionary()


def sender_for(options: SinkOptions, encoder: Encoder, transaction: Transaction | None = None) -> Sender:
    """A sender of one task, over the connections of the task before."""
    return Sender(options.client, options.producing, encoder, transaction)


def topics_of(sender: Sender, options: SinkOptions) -> WritableTopics:
    """Topics, looked up over the sender's connections."""
    of_brokers = _topics.setdefault(sender.brokers, {})
    within_ms = options.producing.max_block_ms
    if within_ms not in of_brokers:
        of_brokers[within_ms] = WritableTopics(sender.brokers, within_ms, options.connection.metadata_max_age_ms)
    return of_brokers[within_ms]


_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def binary_column(array: pa.Array) -> BinaryColumn | None:
    """A column of strings or bytes, large ones and views too; None for one of Arrow's type null. Raises
    pyarrow.ArrowException when the type has no bytes, or they are more than 32-bit offsets reach."""
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        array = array.cast(pa.binary())
    validity, ends, data = map(_bytes, array.buffers())
    return BinaryColumn(array.offset, validity, ends, data)


def headers_column(array: pa.Array) -> HeadersColumn | None:
    """A column of lists of a struct whose first field is the key and the second the value; None for one of type null.
    Raises pyarrow.ArrowException when the type is another one."""
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if not pa.types.is_list(kind):
        array = array.cast(_HEADERS)
    validity, ends = map(_bytes, array.buffers()[:2])
    structs = array.values
    keys, values = (binary_column(structs.field(place)) or _nulls(len(structs)) for place in range(2))
    return HeadersColumn(
        array.offset, validity, ends, len(structs), structs.offset, _bytes(structs.buffers()[0]), keys, values
    )


def _nulls(count: int) -> BinaryColumn:
    return BinaryColumn(0, bytes((count + 7) // 8), bytes(4 * (count + 1)), None)


def _bytes(buffer: pa.Buffer | None) -> memoryview | None:
    # Arrow's buffers call themselves signed bytes.
    return None if buffer is None else memoryview(buffer).cast("B")


COLUMNS = ("key", "value", "headers", "topic", "partition", "origin_partition")


def write(batches: Iterable[pa.RecordBatch], options: SinkOptions, columns: SinkColumns) -> RowsWritten:
    """Write a task's rows; returns when brokers have acknowledged all of them. Raises WriteError, UnwritableRowError,
    BrokerError: rows that were handed over before may be written, or not. Spark then runs the task again."""
    return RowsWritten({tp: of_tp.records for tp, of_tp in written(batches, options, columns).items()})


def written(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    columns: SinkColumns,
    transaction: Transaction | None = None,
) -> dict[TopicPartition, Written]:
    """Write rows, in a transaction if one is given; what brokers have acknowledged. Errors as of :func:`write`."""
    encoder = encode.load(options.writing.encoder)
    if columns.typed:
        from spark_kafka_group.executor.writing.typed_rows import encoded  # few writes have formats

        batches, columns = encoded(batches, options, columns)
    with sender_for(options, encoder, transaction) as sender:
        open_batches = OpenBatches(options, columns, encoder, topics_of(sender, options), sender)
        open_batches.prepare()
        for batch in batches:
            open_batches.add(batch, time.monotonic(), int(time.time() * 1000))
            open_batches.seal_old(time.monotonic())
        open_batches.seal_all()
        return sender.flush() if open_batches.sent else {}  # a task without rows needs no broker


class Sends(Protocol):
    """Where sealed record batches go."""

    @property
    def halvings(self) -> Mapping[str, int]:
        """How often brokers had record batches of a topic halved, as these were too large."""

    def send(self, tp: TopicPartition, batch: EncodedBatch) -> None:
        """Hand a record batch over; waits while kafka.buffer.memory is taken."""


class WrittenTopics(Protocol):
    """What is known of topics."""

    def look_up(self, topics: Collection[str]) -> None:
        """Ask brokers of all of them at once. Raises BrokerError."""

    def leaders(self, topic: str, refresh: bool) -> tuple[int | None, ...]:
        """Leader of each partition; None for one without. Raises BrokerError."""


class OpenBatches:
    """Rows become record batches, which are sealed when they are full or old, and sent. Record batches that are open,
    and those that are sent, have kafka.buffer.memory bytes each at most. `topics`: asked once for each topic, and again
    for a partition that a row names and that is not known. `sent`: whether there was a record batch."""

    def __init__(
        self, options: SinkOptions, columns: SinkColumns, encoder: Encoder, topics: WrittenTopics, sends: Sends
    ) -> None:
        self._options = options.producing
        self._option_topic = options.writing.topic
        self._columns = columns
        self._topics = topics
        self._sends = sends
        self._encoder = encoder
        self._by_key = by_key(columns, options.producing.ignore_keys)
        self._compression = compression_of(options.producing)
        self._destinations: dict[str, TopicDestinations] = {}
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        self._opened_s: dict[TopicPartition, float] = {}  # those that have rows, and since when
        self._open_bytes = 0
        self._halvings: Mapping[str, int] = dict(sends.halvings)
        self.sent = False

    def add(self, batch: pa.RecordBatch, now_s: float, now_ms: int) -> None:
        """Add the rows of one of the task's Arrow batches. `now_s`: by time.monotonic(). `now_ms`: the create time of
        the records, since the epoch. Raises WriteError, UnwritableRowError, BrokerError."""
        if not batch.num_rows:
            return
        if self._halvings != self._sends.halvings:
            self.seal_all()
            self._builders.clear()  # those that are made now make smaller batches
            self._halvings = dict(self._sends.halvings)
        row_bytes = batch.nbytes // batch.num_rows
        column = {name: self._columns.column(batch, name) for name in COLUMNS}
        headers = None if column["headers"] is None else headers_column(column["headers"])
        key, value = (None if column[name] is None else binary_column(column[name]) for name in ("key", "value"))
        rows = self._encoder.Rows(batch.num_rows, key, value, headers)
        if self._option_topic is not None:
            of_topics: Iterable[tuple[str, Buffer | None]] = [(self._option_topic, None)]
        else:
            of_topics = list(rows_of_topics(self._encoder, column["topic"]))
            self._topics.look_up([topic for topic, _ in of_topics if topic not in self._destinations])
        for topic, indices in of_topics:
            destinations = self._destinations_in(topic, column["partition"], indices)
            named = destinations.named(column["partition"], column["origin_partition"])
            each = destinations.partitions(self._encoder, rows, indices, named, self._by_key)
            for partition, places in each:
                if partition == NO_PARTITION:
                    self._append_shared(topic, destinations, rows, places, row_bytes, now_s, now_ms)
                else:
                    self._append(TopicPartition(topic, partition), rows, places, now_s, now_ms)

    def prepare(self) -> None:
        """Look up the topic of the option before there are rows. Raises BrokerError."""
        if self._option_topic is not None:
            self._destinations_in(self._option_topic, None, None)

    def _destinations_in(self, topic: str, given: pa.Array | None, indices: Buffer | None) -> TopicDestinations:
        destinations = self._destinations.get(topic)
        if destinations is None:
            leaders = self._topics.leaders(topic, refresh=False)
            destinations = self._destinations[topic] = TopicDestinations(topic, leaders, self._options.batch_size)
        if destinations.outside(given, indices) is not None:
            destinations.update(self._topics.leaders(topic, refresh=True))  # it may have got partitions
            outside = destinations.outside(given, indices)
            if outside is not None:
                raise destinations.refuse(outside)
        return destinations

    def _append(self, tp: TopicPartition, rows: Rows, places: Buffer, now_s: float, now_ms: int) -> None:
        position, end = 0, _count(places)
        while position < end:
            position, _ = self._append_some(tp, rows, places, position, now_s, now_ms)
            if position < end:
                self._seal(tp)

    def _append_shared(
        self,
        topic: str,
        destinations: TopicDestinations,
        rows: Rows,
        places: Buffer,
        row_bytes: int,
        now_s: float,
        now_ms: int,
    ) -> None:
        places = memoryview(places).cast("B")
        position, count = 0, _count(places)
        while position < count:
            tp = TopicPartition(topic, destinations.shared)
            end = min(count, position + destinations.shared_rows(row_bytes))
            position, added = self._append_some(tp, rows, places[: 4 * end], position, now_s, now_ms)
            if position < end:
                self._seal(tp)
                destinations.change_shared()
            else:
                destinations.add_shared(added)

    def _append_some(
        self, tp: TopicPartition, rows: Rows, places: Buffer, position: int, now_s: float, now_ms: int
    ) -> tuple[int, int]:
        """As many rows as the open record batch of a partition takes: the position that follows them, and bytes."""
        builder = self._builders.get(tp)
        if builder is None:
            builder = self._builders[tp] = self._encoder.BatchBuilder(
                topic=tp.topic, partition=tp.partition,
                batch_size=self._options.batch_size >> self._halvings.get(tp.topic, 0),
                max_request_size=self._options.max_request_size, compression=self._compression,
            )  # fmt: skip
        before = builder.nbytes
        position = builder.append(rows, places, position, now_ms)
        added = builder.nbytes - before
        if added:
            self._opened_s.setdefault(tp, now_s)
        self._open_bytes += added
        if builder.full:
            self._seal(tp)
        elif self._open_bytes > self._options.buffer_memory:
            self.seal_all()
        return position, added

    def _seal(self, tp: TopicPartition) -> None:
        if self._opened_s.pop(tp, None) is not None:
            builder = self._builders[tp]
            self._open_bytes -= builder.nbytes
            self.sent = True
            self._sends.send(tp, builder.seal())

    def seal_old(self, now_s: float) -> None:
        """Send record batches that have been open for kafka.linger.ms."""
        before = now_s - self._options.linger_ms / 1000
        for tp in [tp for tp, since in self._opened_s.items() if since <= before]:
            self._seal(tp)

    def seal_all(self) -> None:
        """Send what is open."""
        for tp in list(self._opened_s):
            self._seal(tp)


def compression_of(producing: Producing) -> Compression:
    """The codec, with its level."""
    kind = producing.compression_type
    level: int | None = getattr(producing, f"compression_{kind}_level", None)
    return Compression(CODECS[kind], None if kind == "gzip" and level == SYSTEMS_LEVEL else level)


def _count(places: Buffer) -> int:
    return memoryview(places).nbytes // 4
