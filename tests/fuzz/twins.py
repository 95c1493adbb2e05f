"""The decoder as a target: both twins, which must agree; and the search for record batches in damaged bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import mutate
import pyarrow as pa
import writer

from spark_kafka_group.errors import CorruptRecordError, ReadError
from spark_kafka_group.executor.decode import Decoder, load
from spark_kafka_group.executor.decode.contract import AbortedTransactions
from spark_kafka_group.executor.reading import batch_headers
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.schema import EVERY, USUAL

TP = TopicPartition("orders", 3)
LARGEST = 1 << 15
CASE = struct.Struct(">BBBH")  # flags, offsets left out at the begin, offsets wanted (0: all), target in bytes (0: all)
HEADERS, CRCS, ABORTED, TIMESTAMPS = 1, 2, 4, 8
MOST = 2**63 - 1


class DisagreementError(Exception):
    """Raised when a property of the decoder does not hold."""


def generate(rng: Random) -> bytes:
    return _case(rng) + writer.log(rng)


def change(rng: Random, data: bytes, other: bytes) -> bytes:
    case, log = data[: CASE.size], data[CASE.size :]
    if rng.random() < 0.2 or len(case) < CASE.size:
        case = _case(rng)
    return case + mutate.mutate_log(rng, log, other[CASE.size :])


def _case(rng: Random) -> bytes:
    flags = rng.randrange(16) | rng.choice((0, CRCS))
    return CASE.pack(flags, rng.choice((0, 0, 0, 1, 4)), rng.choice((0, 0, 0, 1, 3)), rng.choice((0, 0, 1, 100)))


def decoded(data: bytes) -> None:
    """Both twins give the same rows, the same error and the same places, in one call or in steps."""
    if len(data) < CASE.size:
        return
    flags, skipped, wanted, target = CASE.unpack_from(data)
    log = data[CASE.size :]
    base = max(0, int.from_bytes(log[:8], signed=True)) if len(log) >= 8 else 0
    start = min(base + skipped, MOST)
    end = min(start + wanted, MOST) if wanted else MOST
    options = {
        "columns": EVERY if flags & HEADERS else USUAL, "check_crcs": bool(flags & CRCS), "unpacked_limit": LARGEST,
        "target_bytes": target or 1 << 26, "check_timestamps": bool(flags & TIMESTAMPS),
    }  # fmt: skip
    aborted = [(producer, start) for producer in writer.PRODUCERS] if flags & ABORTED else None
    result = list(_steps(load("python"), log, start, end, aborted, options))
    for mine, its in zip(result, _steps(load("c"), log, start, end, aborted, options), strict=True):
        if mine[1:] != its[1:]:
            raise DisagreementError(f"python ends with {mine[1:]} and c with {its[1:]}")
        if not mine[0].equals(its[0]):
            raise DisagreementError(f"the rows differ: {_first_difference(mine[0], its[0])}")


def _steps(
    twin: Decoder, log: bytes, start: int, end: int, aborted: Any, options: dict[str, Any]
) -> Iterator[tuple[pa.RecordBatch, int, int, bool, str | None]]:
    """Rows, bytes counted, byte reached, whether it is halfway there, and error of each call, until all is read."""
    builder = twin.RecordBatchBuilder(**options)
    hidden = None if aborted is None else AbortedTransactions(aborted)
    position = 0
    while True:
        error = None
        begin = position
        try:
            position = builder.append(TP.topic, TP.partition, log, begin, start, end, hidden)
        except ReadError as raised:
            error = f"{type(raised).__name__}: {raised}"
            if not start <= raised.offset:
                raise DisagreementError(f"the error is at {raised.offset}, before {start}") from raised
        if not begin <= builder.position <= len(log):
            raise DisagreementError(f"the position is {builder.position} of {len(log)}, after {begin}") from None
        nbytes, rows, reached, halfway = builder.nbytes, builder.rows, builder.position, builder.halfway
        if halfway and not (builder.full and rows and error is None):
            raise DisagreementError(f"halfway with {rows} rows and {nbytes} bytes")
        batch = builder.finish()
        batch.validate(full=True)
        if batch.num_rows != rows:
            raise DisagreementError(f"{rows} rows are counted and {batch.num_rows} made")
        yield batch, nbytes, reached, halfway, error
        if error is not None or (position == begin and not halfway):
            return


def _first_difference(mine: pa.RecordBatch, its: pa.RecordBatch) -> str:
    if mine.num_rows != its.num_rows:
        return f"{mine.num_rows} and {its.num_rows} of them"
    names = [name for name in mine.schema.names if not mine[name].equals(its[name])]
    return f"in {', '.join(names)}"


def framed(data: bytes) -> None:
    """Both twins skip the same record batches, and the search for others stays within the bytes."""
    view = memoryview(data)
    scan = load("c").scan
    step = max(1, len(data) // 40)
    for position in range(0, len(data) + 1, step):
        if _scanned(load("python"), view, position) != _scanned(load("c"), view, position):
            raise DisagreementError(f"scan from {position} differs")
        frame = batch_headers.at(scan, TP, view, position)
        if frame is not None and not (position == frame.begin < frame.end <= len(data) and frame.next_offset > 0):
            raise DisagreementError(f"{frame} at {position} of {len(data)} bytes")
        batch_headers.impossible(scan, TP, view, position, LARGEST)
        if frame is not None:
            batch_headers.ends_there(scan, TP, view, frame, LARGEST)
        reached, _ = batch_headers.past(scan, TP, view, position)
        if not 0 <= reached <= len(data):
            raise DisagreementError(f"past {position} is {reached} of {len(data)}")
    for target in {len(data) // 2, len(data) - 8}:
        if 0 < target <= len(data) - 8:  # a record batch is known to begin there, so its offset is there
            _looked_for(scan, view, target)


def _looked_for(scan: Any, view: memoryview, target: int) -> None:
    batch_headers.hidden(scan, TP, view, 0, target, 0, _intact)
    found = batch_headers.leading_to(scan, TP, view, 0, target, 0, _intact)
    if found is not None and not 0 < found.begin < found.end <= target:
        raise DisagreementError(f"{found} leads to {target}")
    batch_headers.found_again(view, 0, bytes(view[target : target + batch_headers.HEADER_BYTES]))


def _scanned(twin: Decoder, view: memoryview, position: int) -> object:
    try:
        return twin.scan(TP.topic, TP.partition, view, position)
    except CorruptRecordError as error:
        return str(error)


def _intact(tp: TopicPartition, batch: memoryview) -> bool:
    """As ``executor.search`` has it."""
    builder = load("c").RecordBatchBuilder(columns=USUAL, check_crcs=True, unpacked_limit=LARGEST, target_bytes=LARGEST)
    position = 0
    try:
        while position < len(batch):
            position = builder.append(tp.topic, tp.partition, batch, position, 0, MOST)
            builder.finish()
    except CorruptRecordError:
        return False
    return True
