"""Arrow columns to Kafka's record batches, by one of two twins that give the same bytes or the same error."""

from __future__ import annotations

from spark_kafka_group.executor import compiled_twin
from spark_kafka_group.executor.encode.encoder_contract import (
    CODECS,
    BatchBuilder,
    Compression,
    EncodedBatch,
    Encoder,
    Rows,
)

__all__ = ["CODECS", "BatchBuilder", "Compression", "EncodedBatch", "Encoder", "Rows", "load"]

TWINS = compiled_twin.Twins(
    __name__,
    "_encode_c",
    "_encode_py",
    "encoder",
    "encoder=c: the compiled encoder was not built",
    "records are encoded",
)


def load(name: str) -> Encoder:
    """The twin that option ``encoder`` names. Raises OptionError when the compiled twin is asked for by name and was
    not built."""
    twin: Encoder = TWINS.load(name)
    return twin
