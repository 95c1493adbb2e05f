"""Programs of Python, and terminals, for tests without Spark."""

import os
import sys

import pytest
from support.forked import forks


@pytest.fixture(scope="session")
def python():
    """Runs a program where pyspark is imported already."""
    with forks() as run:
        yield run


@pytest.fixture
def terminal(monkeypatch):
    """Makes standard output a terminal of so many columns."""
    master, slave = os.openpty()
    with os.fdopen(master, "rb", 0), os.fdopen(slave, "w") as screen:

        def of(columns):
            monkeypatch.setattr(sys, "stdout", screen)
            monkeypatch.setenv("COLUMNS", str(columns))

        yield of
