"""Both twins give the same column and the same malformed values, for the same bytes."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from protobuf_cases import case_of, varint
from protobuf_decoding import OPTIONS, decoder_of, rows_of

from spark_kafka_group.executor.values.framing import MessageKey


def decoded(case, options, decoder, wanted=None, framed=False):
    made = decoder_of(case, options, decoder, wanted, framed)
    values, ids = list(case.values), [MessageKey(i % 2, (i % 3,)) for i in range(len(case.values))]
    if framed:
        starts = (b"\0", varint(2) + varint(0), varint(2) + varint(2), b"\x80\0")
        values = [bytes([0, 0, 0, 0, i % 2]) + starts[i % 4] + value for i, value in enumerate(values)]
    column = pa.array([None, *values, None], pa.binary()).slice(1)
    array, malformed = made.decode(column, None if framed else [*ids, ids[0]])
    array.validate(full=True)
    assert array.type == made.type
    assert len(array) == len(column)
    assert all(not array[found.row].is_valid for found in malformed)
    return repr(rows_of(array)), malformed


@given(st.randoms(use_true_random=True), OPTIONS, st.booleans(), st.booleans())
def test_twins_agree_on_random_schemas_and_values(rng, options, good, framed):
    case = case_of(rng, good=good)
    assert decoded(case, options, "python", framed=framed) == decoded(case, options, "c", framed=framed)


@given(st.randoms(use_true_random=True), OPTIONS, st.booleans())
def test_wanted_fields_are_those_of_the_whole_column(rng, options, good):
    case = case_of(rng, good=good)
    names = [field.name for field in decoder_of(case, options, "c").type]
    wanted = tuple(rng.sample(names, rng.randint(1, len(names))))
    values = pa.array(case.values, pa.binary())
    one, other = (decoder_of(case, options, decoder, wanted).decode(values) for decoder in ("python", "c"))
    assert repr(rows_of(one[0])) == repr(rows_of(other[0]))
    assert one[1] == other[1]
    whole, malformed = decoder_of(case, options, "c").decode(values)
    broken = {found.row for found in malformed}
    for row, (part, full) in enumerate(zip(rows_of(one[0]), rows_of(whole), strict=True)):
        if row not in broken:
            assert repr(part) == repr({name: full[name] for name in names if name in wanted})
