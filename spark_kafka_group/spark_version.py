"""Which versions of pyspark the package works with."""

from __future__ import annotations

import re

from spark_kafka_group.errors import SparkVersionError

LOWEST, BELOW = (4, 2), (5, 0)
INSTALL = "pip install 'pyspark>=4.2,<5'"


def is_supported(version: str) -> bool:
    """Whether that version of pyspark has what the package needs of it."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and LOWEST <= (int(numbers[1]), int(numbers[2])) < BELOW


def require_supported() -> None:
    """Look at the pyspark of this process.

    Raises
    ------
    SparkVersionError
        When there is none, or it is too old or too new.
    """
    try:
        import pyspark
    except ImportError:
        raise SparkVersionError(f"spark-kafka-group needs pyspark, which is not installed: {INSTALL}") from None
    if not is_supported(pyspark.__version__):
        raise SparkVersionError(
            f"spark-kafka-group needs pyspark {_text(LOWEST)} or newer, below {_text(BELOW)}, and "
            f"{pyspark.__path__[0]} is {pyspark.__version__}: {INSTALL}, or use a Spark of one of these versions"
        )


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
