"""Kafka's primitive types, read from bytes of a record that brokers keep. No I/O."""

from __future__ import annotations

import uuid

from spark_kafka_group.values.offsets import TopicPartition


class KafkaBytes:
    """Kafka's primitive types, read one after the other; ValueError for impossible bytes."""

    def __init__(self, data: bytes, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self._flexible = flexible

    def value_version(self, newest: int, first_flexible: int) -> int:
        """The version that begins a value; it decides how lengths are read. `newest`: the newest version whose layout
        is known. `first_flexible`: the first one with compact lengths and tagged fields."""
        version = self.int16()
        if not 0 <= version <= newest:
            raise ValueError(f"version {version} is not known, only {f'0 to {newest} are' if newest else '0 is'}")
        self._flexible = version >= first_flexible
        return version

    def protocol_version(self) -> int:
        """The version that begins a subscription or assignment."""
        version = self.int16()
        if version < 0:
            raise ValueError(f"version {version} cannot be")
        return version

    def present(self) -> bool:
        """Whether a structure that may be null follows, in a tagged field."""
        return self._varint() > 0

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError(f"null at {self._position}, where a string must be")
        return text

    def nullable_string(self) -> str | None:
        size = self._varint() - 1 if self._flexible else self.int16()
        return None if size == -1 else self._take(size).decode()

    def nullable_bytes(self) -> bytes | None:
        size = self._varint() - 1 if self._flexible else self.int32()
        return None if size == -1 else self._take(size)

    def count(self) -> int:
        """Elements of an array; each takes at least one byte."""
        count = self._varint() - 1 if self._flexible else self.int32()
        if not 0 <= count <= len(self._data) - self._position:
            raise ValueError(f"{count} elements announced at {self._position} of {len(self._data)} bytes")
        return count

    def partitions(self) -> tuple[TopicPartition, ...]:
        owned = []
        for _ in range(self.count()):
            topic = self.string()
            owned += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(owned)

    def strings(self) -> tuple[str, ...]:
        return tuple(self.string() for _ in range(self.count()))

    def uuid(self) -> str:
        """As the ids of topics in a query's checkpoint are written."""
        return str(uuid.UUID(bytes=self._take(16)))

    def tags(self) -> dict[int, KafkaBytes]:
        """Tagged fields by their tags; there are none before the first flexible version."""
        found = {}
        for _ in range(self._varint() if self._flexible else 0):
            tag = self._varint()
            found[tag] = KafkaBytes(self._take(self._varint()), flexible=True)
        return found

    def end(self) -> None:
        """Be at the end."""
        left = len(self._data) - self._position
        if left:
            raise ValueError(f"{left} bytes are left over after {self._position}")

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
        raise ValueError(f"the number that ends at {self._position} has more than 32 bits")

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._position:
            raise ValueError(f"{size} bytes announced at {self._position} of {len(self._data)}")
        self._position += size
        return self._data[self._position - size : self._position]
