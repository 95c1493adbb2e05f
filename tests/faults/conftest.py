"""Programs that a test started are gone when it ends, however it ends."""

import pytest

from faults.processes import Program
from faults.running import Query


@pytest.fixture
def start_query(tmp_path):
    """Starts queries in the test's directory; their sink is written over."""
    started = []

    def start(settings, *arguments, directory=tmp_path, kind=Query):
        started.append(kind(directory, "groupkafka", settings, {}, "overwrite", *map(str, arguments)))
        started[-1].launch()
        return started[-1]

    yield start
    for query in started:
        query.close()


@pytest.fixture
def start_program(tmp_path):
    """Starts any program."""
    started = []

    def start(command, log=tmp_path / "log", **environment):
        started.append(Program(command, log, **environment))
        return started[-1]

    yield start
    for program in started:
        program.kill()
