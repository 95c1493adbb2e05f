"""Decompression with libraries that are always installed: zlib for gzip, pyarrow for snappy, lz4 and zstd.

No codec may hand over more than a given number of bytes, and none allocates more than that because bytes from the wire
say so.
"""

from __future__ import annotations

import zlib
from struct import Struct

import pyarrow as pa

from spark_kafka_group.executor.decode.contract import Buffer
from spark_kafka_group.executor.decode.problems import MalformedError

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_FIRST_READ = 1 << 16
_FIRST_FEED = 1 << 9
_JOINED_AT = 256
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16  # the eight bytes above, version, lowest compatible version
_BLOCK_LENGTH = Struct(">i")

_snappy = pa.Codec("snappy")


def unpack(codec: int, packed: memoryview, limit: int) -> Buffer:
    """The bytes that `packed` holds, at most `limit` of them. Raises MalformedError when `packed` is not of that codec,
    is cut off, or holds more than `limit` bytes."""
    try:
        if codec == GZIP:
            return _gunzip(packed, limit)
        if codec == SNAPPY:
            return _unsnap(packed, limit)
        return _stream(codec, packed, limit)
    except (OSError, ValueError, zlib.error) as error:  # pa.ArrowInvalid is a ValueError
        # The libraries' own words stay out: they differ from version to version.
        raise MalformedError(f"cannot be unpacked with {NAMES[codec]}") from error


def _bomb(codec: int, limit: int) -> MalformedError:
    return MalformedError(
        f"unpacks with {NAMES[codec]} to more than {limit} bytes. kafka.fetch.max.bytes bounds that: raise it if the "
        "batch is genuine"
    )


class _Pieces:
    """Unpacked bytes as they come, at most `limit` of them. Small pieces are joined: each costs hundreds of bytes."""

    def __init__(self, codec: int, limit: int) -> None:
        self._codec = codec
        self._limit = limit
        self._joined: list[Buffer] = []
        self._small: list[Buffer] = []
        self.room = limit

    def check(self, size: int) -> None:
        """Whether there is room for so many bytes more."""
        if size > self.room:
            raise _bomb(self._codec, self._limit)

    def add(self, piece: Buffer) -> None:
        self.check(len(piece))
        if piece:
            self.room -= len(piece)
            self._small.append(piece)
        if len(self._small) == _JOINED_AT:
            self._joined.append(b"".join(self._small))
            self._small.clear()

    def whole(self) -> Buffer:
        parts = self._joined + self._small
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _gunzip(packed: memoryview, limit: int) -> Buffer:
    if not packed:
        raise ValueError("empty")
    pieces = _Pieces(GZIP, limit)
    position = _gunzip_member(packed, 0, len(packed), pieces)
    while position < len(packed):  # gzip allows members one after another
        position = _gunzip_member(packed, position, _FIRST_FEED, pieces)
    return pieces.whole()


def _gunzip_member(packed: memoryview, position: int, feed: int, pieces: _Pieces) -> int:
    """Unpack the member at a byte of `packed`, fed ever more at a time, as zlib copies the rest; the byte after it."""
    member = zlib.decompressobj(31)
    while not member.eof:
        if position == len(packed):
            raise ValueError("cut off")
        fed = packed[position : position + feed]
        pieces.add(member.decompress(fed, pieces.room + 1))
        position += len(fed) - len(member.unused_data)
        feed *= 2
    return position


def _unsnap(packed: memoryview, limit: int) -> Buffer:
    """Snappy in xerial's framing, as Kafka's clients write it, or one bare block, as few others do."""
    pieces = _Pieces(SNAPPY, limit)
    if packed[:8] != _XERIAL:
        pieces.add(_unsnap_block(packed, pieces))
        return pieces.whole()
    if len(packed) < _XERIAL_HEADER:
        raise ValueError("cut off")
    position = _XERIAL_HEADER
    while position < len(packed):
        if len(packed) - position < _BLOCK_LENGTH.size:
            raise ValueError("cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(packed, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(packed) - position:
            raise ValueError("a block's length")
        pieces.add(_unsnap_block(packed[position : position + length], pieces))
        position += length
    return pieces.whole()


def _unsnap_block(block: memoryview, pieces: _Pieces) -> Buffer:
    # The size is read, and judged, before anything of that size is allocated.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise ValueError("a block's size")
    pieces.check(size)
    if not size and 7 * len(block) == shift:
        return b""
    return _view(_snappy.decompress(block, decompressed_size=size))


def _stream(codec: int, packed: memoryview, limit: int) -> memoryview | bytes:
    """lz4 or zstd frames, streamed (3 us a batch more), as Java's producer writes none with its content size."""
    if not packed:
        raise ValueError("empty")
    parts: list[memoryview] = []
    total = 0
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(packed)), NAMES[codec]) as stream:
        while total <= limit:
            # Each read is allocated in full beforehand: begin with a guess and double.
            wanted = min(max(_FIRST_READ, 8 * len(packed), total), limit + 1 - total)
            part = _view(stream.read_buffer(wanted))
            parts.append(part)
            total += len(part)
            if len(part) < wanted:
                return parts[0] if len(parts) == 1 else b"".join(parts)
    raise _bomb(codec, limit)


def _view(buffer: pa.Buffer) -> memoryview:
    # Arrow's buffers call themselves signed bytes.
    return memoryview(buffer).cast("B")


def mend_lz4_header(packed: memoryview) -> bytes:
    """`packed` with the right header checksum: clients of message format v0 got it wrong (KAFKA-3160). They hashed the
    magic number along with the descriptor. Java's consumer, too, does not look at it in format v0."""
    descriptor = 2
    if len(packed) > 4:
        flags = packed[4]
        descriptor += 8 * (flags >> 3 & 1) + 4 * (flags & 1)  # content size, dictionary id
    checksum_at = 4 + descriptor
    if len(packed) <= checksum_at:
        return bytes(packed)
    mended = bytearray(packed)
    mended[checksum_at] = _xxh32(bytes(packed[4:checksum_at])) >> 8 & 0xFF
    return bytes(mended)


def _xxh32(data: bytes) -> int:
    """xxHash of fewer than 16 bytes, seed 0."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    h = p5 + len(data)
    words = len(data) // 4 * 4
    for i in range(0, words, 4):
        h = (h + int.from_bytes(data[i : i + 4], "little") * p3) & mask
        h = ((h << 17 | h >> 15) & mask) * p4 & mask
    for byte in data[words:]:
        h = (h + byte * p5) & mask
        h = ((h << 11 | h >> 21) & mask) * p1 & mask
    h = (h ^ h >> 15) * p2 & mask
    h = (h ^ h >> 13) * p3 & mask
    return h ^ h >> 16
