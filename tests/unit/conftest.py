"""Programs of Python for tests without Spark."""

import pytest
from support.forked import forks


@pytest.fixture(scope="session")
def python():
    """Runs a program where pyspark is imported already."""
    with forks() as run:
        yield run
