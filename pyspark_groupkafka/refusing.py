"""The source on a version of Spark that it does not work with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource


def source_that_raises(error: ImportError) -> type[DataSource]:
    """A source of the same name that raises when a query asks for it.

    Raises
    ------
    ImportError
        The same one, where Spark is so old that it has no sources in Python.
    """
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:
        raise error from None

    text = str(error)  # Spark pickles what the class needs, and the error's own class could not be imported again

    class Refusing(DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(text)

        @classmethod
        def name(cls) -> str:
            return "groupkafka"

    return Refusing
