"""Values decoded by both twins."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["python", "c"])
def twin(request: pytest.FixtureRequest) -> str:
    """The name of a twin, as option ``decoder`` has it."""
    return str(request.param)
