"""Every test that takes ``twin`` runs on both twins of the encoder, in one process."""

from __future__ import annotations

import pytest

from spark_kafka_group.executor.encode import Encoder, load


@pytest.fixture(params=["python", "c"])
def twin(request: pytest.FixtureRequest) -> Encoder:
    return load(request.param)
