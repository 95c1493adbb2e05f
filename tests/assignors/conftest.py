"""One JVM with Kafka's own assignors for all tests here."""

import pytest
from java_assignors import Java


@pytest.fixture(scope="session")
def java():
    started = Java()
    yield started
    started.stop()
