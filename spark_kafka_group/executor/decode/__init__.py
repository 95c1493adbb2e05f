"""Kafka's record batches to Arrow, by one of two twins that give the same rows or the same error for the same bytes."""

from __future__ import annotations

from spark_kafka_group.executor import compiled_twin
from spark_kafka_group.executor.decode.contract import Buffer, Decoder, RecordBatchBuilder

__all__ = ["Buffer", "Decoder", "RecordBatchBuilder", "load"]

TWINS = compiled_twin.Twins(
    __name__,
    "_decode_c",
    "_decode_py",
    "decoder",
    "decoder=c: the compiled decoder was not built",
    "records are decoded",
)


def load(name: str) -> Decoder:
    """The twin that option ``decoder`` names: a module with ``RecordBatchBuilder`` and ``scan``. Raises OptionError
    when the compiled twin is asked for by name and was not built."""
    twin: Decoder = TWINS.load(name)
    return twin
