"""Every test that takes ``twin`` runs on both twins of the decoder, in one process."""

from __future__ import annotations

import pytest

from spark_kafka_group.executor.decode import Decoder, load


@pytest.fixture(params=["python", "c"])
def twin(request: pytest.FixtureRequest) -> Decoder:
    return load(request.param)
