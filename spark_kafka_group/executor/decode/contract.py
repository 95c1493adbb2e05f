"""The interface of both twins of the decoder, and the numbers they share.

``_decode_py`` is the readable twin, ``_decode_c`` the quick one. For the same bytes they give the same rows or the
same error text; a property test feeds both the same generated and mutated bytes. Message format v2 is decoded by each
twin for itself; codecs (``codecs``), message formats v0 and v1 (``legacy``), and the topic column, keys of headers and
the wording of errors (``problems``) are shared, and so is the state of aborted transactions.

Records of aborted transactions are hidden by the rules of Kafka's ``CompletedFetch``: a response names the aborted
transactions that overlap its records, each by its producer and its first offset. From there on the producer's
transactional batches are hidden, up to its next ABORT marker. Nothing is remembered from response to response, so a
range may begin anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


ABORT = 0  # type of the control record that ends an aborted transaction; COMMIT is 1, others are not about transactions

MARKER_KEY_SIZE = 4  # fewest bytes of a control record's key: its version and its type, 16 bits each


class AbortedTransactions:
    """The aborted transactions of one fetch response, while its batches are read in the order of the log.
    `transactions`: producer id and first offset of each, in any order."""

    __slots__ = ("_aborting", "_ahead")

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(transactions, key=lambda transaction: -transaction[1])  # the next one is the last
        self._aborting: set[int] = set()

    def reached(self, producer_id: int, last_offset: int) -> bool:
        """Go on to a batch that has a producer: whether that producer is within an aborted transaction there."""
        ahead = self._ahead
        while ahead and ahead[-1][1] <= last_offset:
            self._aborting.add(ahead.pop()[0])
        return producer_id in self._aborting

    def ended(self, producer_id: int) -> None:
        """Note an ABORT marker: the producer's next records belong to another transaction."""
        self._aborting.discard(producer_id)


Buffer = bytes | bytearray | memoryview

ROW_COST = 40  # bytes that ``nbytes`` counts per row for the fixed columns, on top of topic, key, value and headers

HEADER_COST = 8  # bytes that ``nbytes`` counts per header, on top of its key and value

BUILDER_LIMIT = 2**31 - 1
"""Most that ``nbytes`` may reach: no column can then outgrow Arrow's 32-bit offsets, as nbytes counts every column."""

MAX_OFFSET = 2**63 - 2  # largest offset of a record: the one after it must be an int64 too

MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
"""Timestamps beyond this, in either direction, do not fit Arrow's and Spark's microseconds."""

NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1


class RecordBatchBuilder(Protocol):
    """Collects rows of one or several partitions and hands them over as one Arrow RecordBatch.

    Not thread-safe. After an error that is no ReadError, as a MemoryError, part of a row may be there: from then on
    :meth:`append` and :meth:`finish` raise RuntimeError.

    `columns`: the batch's columns, in order. No other column is built; without ``headers`` headers are not even parsed.
        Bytes that are no record are found whatever the columns.
    `check_crcs`: whether CRCs are checked (``kafka.check.crcs``).
    `check_timestamps`: whether a timestamp beyond MAX_TIMESTAMP_MS is an error; else it is null.
    `unpacked_limit`: the most bytes that one compressed record batch may unpack to, and that `nbytes` may count for the
        headers of one record.
    `target_bytes`: :meth:`append` stops after the row that brings :attr:`nbytes` to this.
    Raises ValueError when `unpacked_limit` or `target_bytes` is not positive.
    """

    def __init__(
        self,
        *,
        columns: tuple[str, ...],
        check_crcs: bool,
        unpacked_limit: int,
        target_bytes: int,
        check_timestamps: bool = True,
    ) -> None: ...

    @property
    def rows(self) -> int:
        """Rows held."""

    @property
    def nbytes(self) -> int:
        """Bytes held: topic, key, value and header data of the columns, ROW_COST per row, HEADER_COST per header."""

    @property
    def position(self) -> int:
        """Byte of `records` up to which the last :meth:`append` came: after a CorruptRecordError, or halfway through a
        record batch, where that begins."""

    @property
    def full(self) -> bool:
        """Whether :attr:`nbytes` has come to `target_bytes`."""

    @property
    def halfway(self) -> bool:
        """Whether the last :meth:`append` stopped between two records of the record batch at :attr:`position`: the next
        one has to go on there, after a :meth:`finish`. Until then the builder keeps what it unpacked to."""

    @property
    def check_crcs(self) -> bool:
        """As given."""

    @property
    def check_timestamps(self) -> bool:
        """As given; false without the column ``timestamp``."""

    @property
    def unpacked_limit(self) -> int:
        """As given."""

    def append(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        position: int,
        start: int,
        end: int,
        aborted: AbortedTransactions | None = None,
    ) -> int:
        """Decode record batches and keep the rows with ``start <= offset < end``.

        Control batches give no rows. Record batches that lie wholly below `start`, or at and after `end`, are hopped
        over without a look at their CRC or records. With `aborted`, control batches below `start` are read, as they
        may end an aborted transaction. A record batch cut off at the end of `records` is ignored, as brokers cut where
        the fetch size ends. Inside a batch offsets may be missing or out of order: compaction leaves gaps. From batch
        to batch offsets must go up.

        `records`: the records field of one partition in a FetchResponse: record batches of magic 2, messages of magic 0
            and 1, or a mix of them.
        `position`: byte of `records` to begin at: 0, or the result of an earlier call.
        `start`, `end`: offsets wanted.
        `aborted`: hides the aborted transactions that the response with these `records` names; the same object in every
            call for them. With it a control batch that has a producer must begin with a marker. None hides nothing.
        Returns the byte where it stopped: after the last complete record batch. If a row brought :attr:`nbytes` to
        `target_bytes`: after that row's record batch if the row was its last, else at the begin of that record batch
        (:attr:`halfway`). Every call that finds a complete record batch moves on by at least a row, or a record batch.
        Raises ValueError when `position` is outside `records`, or the builder is halfway through another record batch.
            The builder is as it was.
        Raises CorruptRecordError when bytes are not records. Its offset is the first one not read, never below `start`:
            the first of the record batch if that is bad as a whole, else the one after the last good record. Rows
            before it stay in the builder.
        Raises ReadError when the rows would outgrow BUILDER_LIMIT, or with `check_timestamps` a timestamp of a row does
            not fit microseconds. Rows before it stay in the builder.
        """

    def append_row(
        self, offset: int, timestamp_ms: int, timestamp_type: int, key: Buffer | None, value: Buffer | None
    ) -> None:
        """Add a row of the partition that :meth:`append` is at; for ``legacy`` only."""

    def finish(self) -> pa.RecordBatch:
        """The rows held, with exactly ``schema.arrow_schema(columns)``; the builder is empty afterwards. As in Spark's
        kafka source a record without headers has null headers. Bytes of a header's key that are not UTF-8 become
        U+FFFD. A record of message format v0 has timestamp -1 ms and timestampType -1."""


class Decoder(Protocol):
    """A twin: the module."""

    @property
    def RecordBatchBuilder(self) -> type[RecordBatchBuilder]:  # noqa: N802
        """The builder."""

    def scan(self, topic: str, partition: int, records: Buffer, position: int = 0) -> tuple[int, int]:
        """Hop over record batches by their headers, to the byte and the offset after the last complete one;
        ``(position, -1)`` without one. Raises CorruptRecordError for an impossible length, offset or magic."""
