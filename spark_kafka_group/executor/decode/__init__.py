"""Kafka's record batches to Arrow, by one of two twins that give the same rows or the same error for the same bytes."""

from __future__ import annotations

import logging

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.decode.contract import Buffer, Decoder, RecordBatchBuilder

__all__ = ["Buffer", "Decoder", "RecordBatchBuilder", "load"]

log = logging.getLogger(__name__)

_warned = False


def load(name: str) -> Decoder:
    """The twin that option ``decoder`` names: a module with ``RecordBatchBuilder`` and ``scan``.

    Raises
    ------
    OptionError
        When the compiled twin is asked for by name and was not built.
    """
    if name == "python":
        return _python()
    try:
        from spark_kafka_group.executor.decode import _decode_c
    except ImportError as error:
        if name == "c":
            raise OptionError(
                f"decoder=c: the compiled decoder was not built ({error}): install spark-kafka-group where there is a "
                f"C compiler and without SPARK_KAFKA_GROUP_NO_EXTENSION, or set decoder=auto"
            ) from error
        _warn_once(error)
        return _python()
    return _decode_c


def _python() -> Decoder:
    from spark_kafka_group.executor.decode import _decode_py

    return _decode_py


def _warn_once(error: ImportError) -> None:
    global _warned
    if not _warned:
        log.warning("the compiled decoder was not built (%s); records are decoded slowly in Python", error)
        _warned = True
