"""JSON and strings to columns; the twin of the JSON decoder is loaded here."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType

from spark_kafka_group.executor import compiled_twin
from spark_kafka_group.executor.values.value_contract import Malformed, ValueDecoder

TWINS = compiled_twin.Twins(
    __name__.rpartition(".")[0],
    "_json_c",
    "_json_py",
    "decoder",
    "decoder=c: the compiled JSON decoder was not built",
    "values are decoded",
)
FRAME_SIZE = 5
NO_FRAME = "no zero byte and schema id before the text"
MOST_BYTES = 2**31 - 1


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
    """Values as text, as ``CAST(value AS STRING)`` gives it: the same bytes, also where they are no UTF-8.

    Parameters
    ----------
    framed
        Whether each value begins with a zero byte and a schema id of four bytes.
    """

    type = pa.string()

    def __init__(self, framed: bool = False) -> None:
        self._framed = framed

    def decode(
        self, values: pa.Array, ids: Sequence[int | str | None] | None = None
    ) -> tuple[pa.Array, list[Malformed]]:
        """The column, and the rows without frame; without copying where there are no frames."""
        malformed: list[Malformed] = []
        if self._framed:
            framed = pc.equal(pc.binary_slice(values, 0, 1), b"\0")
            framed = pc.and_(framed, pc.greater_equal(pc.binary_length(values), FRAME_SIZE))
            without = pc.indices_nonzero(pc.invert(framed)).to_pylist()
            malformed = [Malformed(row, None, "", NO_FRAME) for row in without]
            if without:
                values = pc.if_else(framed, values, pa.scalar(None, pa.binary()))
            values = pc.binary_slice(values, FRAME_SIZE, MOST_BYTES)
        return pa.Array.from_buffers(self.type, len(values), values.buffers(), offset=values.offset), malformed
