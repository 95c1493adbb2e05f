"""JSON and strings to columns; the twin of the JSON decoder is loaded here."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import DataType

from spark_kafka_group.executor import compiled_twin
from spark_kafka_group.executor.values.value_contract import NO_LIMIT, Malformed, ValueDecoder

TWINS = compiled_twin.Twins(
    __name__.rpartition(".")[0],
    "_json_c",
    "_json_py",
    "decoder",
    "decoder=c: the compiled JSON decoder was not built",
    "values are decoded",
)


def json_decoder(
    spark_type: DataType,
    wanted: tuple[str, ...] | None = None,
    framed: bool = False,
    time_zone: str = "UTC",
    decoder: str = "auto",
) -> ValueDecoder:
    """What ``_json_py.JsonDecoder`` says, by the twin that `decoder` names."""
    found: ValueDecoder = TWINS.load(decoder).JsonDecoder(spark_type, wanted, framed, time_zone)
    return found


class StringDecoder:
    """Values as text, as ``CAST(value AS STRING)`` gives it: the same bytes, also where they are no UTF-8."""

    type = pa.string()

    def decode(
        self, values: pa.Array, ids: Sequence[int | str | None] | None = None, most_bytes: int = NO_LIMIT
    ) -> tuple[pa.Array, list[Malformed]]:
        """The column, without copying."""
        return pa.Array.from_buffers(self.type, len(values), values.buffers(), offset=values.offset), []
