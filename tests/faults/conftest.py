"""Programs that a test started are gone when it ends, however it ends."""

import pytest

from faults import processes


@pytest.fixture
def start_query(tmp_path):
    """Starts queries in the test's directory."""
    started = []

    def start(settings, *arguments, directory=tmp_path, program="kill_query"):
        started.append(processes.start_query(directory, settings, *arguments, program=program))
        return started[-1]

    yield start
    for program in started:
        program.kill()


@pytest.fixture
def start_program(tmp_path):
    """Starts any program."""
    started = []

    def start(command, log=tmp_path / "log", **environment):
        started.append(processes.Program(command, log, **environment))
        return started[-1]

    yield start
    for program in started:
        program.kill()
