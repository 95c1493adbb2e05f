"""Kafka's record batches to Arrow, by one of two twins that give the same rows or the same error for the same bytes."""

from __future__ import annotations

import logging
from pathlib import Path

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor import compiled_twin
from spark_kafka_group.executor.decode.contract import Buffer, Decoder, RecordBatchBuilder

__all__ = ["Buffer", "Decoder", "RecordBatchBuilder", "load"]

log = logging.getLogger(__name__)

HERE = Path(__file__).parent

_warned = False


def load(name: str) -> Decoder:
    """The twin that option ``decoder`` names: a module with ``RecordBatchBuilder`` and ``scan``. Raises OptionError
    when the compiled twin is asked for by name and was not built."""
    if name == "python":
        return _python()
    try:
        compiled: Decoder = compiled_twin.load(__name__, "_decode_c")
        return compiled
    except ImportError as error:
        if name == "c":
            raise OptionError(
                f"decoder=c: the compiled decoder was not built ({error}): {_what_to_change()}, or set decoder=auto"
            ) from error
        _warn_once(error)
        return _python()


def _python() -> Decoder:
    from spark_kafka_group.executor.decode import _decode_py

    return _decode_py


def _warn_once(error: ImportError) -> None:
    global _warned
    if not _warned:
        log.warning(
            "the compiled decoder was not built (%s), so records are decoded slowly in Python: %s",
            error,
            _what_to_change(),
        )
        _warned = True


def _what_to_change() -> str:
    return compiled_twin.why_not_built(HERE, "_decode_c")
