"""Both twins give the same column and the same malformed values, for the same bytes."""

from __future__ import annotations

import pyarrow as pa
from avro_cases import case_of
from from_avro import plain
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.executor.values.avro_decoder import AvroDecoder


def decoded(case, decoder, wanted=None, framed=False):
    made = AvroDecoder(case.reader, wanted, framed, {1: case.writer, 2: case.reader}.__getitem__, decoder)
    values, ids = list(case.values), [1] * len(case.values)
    if framed:
        values = [b"\0\0\0\0" + bytes([1 + i % 3]) + value for i, value in enumerate(values)]
    column = pa.array([None, *values, None], pa.binary()).slice(1)
    array, malformed = made.decode(column, None if framed else [*ids, 1])
    array.validate(full=True)
    assert array.type == made.type
    assert len(array) == len(column)
    assert all(not array[found.row].is_valid for found in malformed)
    return plain(array), malformed


@given(st.randoms(use_true_random=True), st.booleans(), st.booleans())
def test_twins_agree_on_random_schemas_and_values(rng, good, framed):
    case = case_of(rng, good=good)
    assert decoded(case, "python", framed=framed) == decoded(case, "c", framed=framed)


@given(st.randoms(use_true_random=True), st.booleans())
def test_wanted_fields_are_those_of_the_whole_column(rng, good):
    case = case_of(rng, good=good)
    names = [field.name for field in AvroDecoder(case.reader, None, False, {}.__getitem__, "python").type]
    wanted = tuple(rng.sample(names, rng.randint(1, len(names))))
    one, other = (decoded(case, decoder, wanted) for decoder in ("python", "c"))
    assert one == other
    if good:
        whole, malformed = decoded(case, "c")
        broken = {found.row for found in malformed}
        for i, (part, full) in enumerate(zip(one[0], whole, strict=True)):
            if i not in broken and full is not None:
                assert part == {name: full[name] for name in names if name in wanted}
