"""fastavro, another reader of the specification, gives the same values; it has rules of its own for reader schemas."""

from __future__ import annotations

import io
import json

import fastavro
import pyarrow as pa
from avro_cases import case_of
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.executor.values.avro_decoder import AvroDecoder


@given(st.randoms(use_true_random=True))
def test_fastavro_reads_the_same(rng):
    case = case_of(rng, simple=True)
    array, malformed = AvroDecoder(case.writer, None, False, {}.__getitem__).decode(pa.array(case.values, pa.binary()))
    assert malformed == []
    schema = fastavro.parse_schema(json.loads(case.writer))
    theirs = [fastavro.schemaless_reader(io.BytesIO(value), schema) for value in case.values]
    assert shown(theirs) == shown(array.to_pylist(maps_as_pydicts="lossy"))


def shown(value):
    """NaN is itself."""
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    return repr(value)
