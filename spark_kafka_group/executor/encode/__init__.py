"""Arrow columns to Kafka's record batches, by one of two twins that give the same bytes or the same error."""

from __future__ import annotations

import logging
from pathlib import Path

from spark_kafka_group.errors import OptionError
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

log = logging.getLogger(__name__)

HERE = Path(__file__).parent

_warned = False


def load(name: str) -> Encoder:
    """The twin that option ``encoder`` names. Raises OptionError when the compiled twin is asked for by name and was
    not built."""
    if name == "python":
        return _python()
    try:
        compiled: Encoder = compiled_twin.load(__name__, "_encode_c")
        return compiled
    except ImportError as error:
        if name == "c":
            raise OptionError(
                f"encoder=c: the compiled encoder was not built ({error}): {_what_to_change()}, or set encoder=auto"
            ) from error
        _warn_once(error)
        return _python()


def _python() -> Encoder:
    from spark_kafka_group.executor.encode import _encode_py

    return _encode_py


def _warn_once(error: ImportError) -> None:
    global _warned
    if not _warned:
        log.warning(
            "the compiled encoder was not built (%s), so records are encoded slowly in Python: %s",
            error,
            _what_to_change(),
        )
        _warned = True


def _what_to_change() -> str:
    return compiled_twin.why_not_built(HERE, "_encode_c")
