"""Rows are those that from_protobuf's rules make of google's own messages, which read the same bytes."""

from __future__ import annotations

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor as Of
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st
from protobuf_cases import WRAPPERS, case_of
from protobuf_decoding import OPTIONS, decoder_of, rows_of

from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions
from spark_kafka_group.executor.values._columns_py import text_of

NAMES = {0: "RED", 1: "GREEN", -5: "BLUE", 1 << 30: "FAR"}
MASKS = {Of.TYPE_UINT32: 32, Of.TYPE_FIXED32: 32, Of.TYPE_UINT64: 64, Of.TYPE_FIXED64: 64}


@given(st.randoms(use_true_random=True), OPTIONS)
def test_google_reads_the_same(rng, options):
    case = case_of(rng)
    array, malformed = decoder_of(case, options, "c").decode(pa.array(case.values, pa.binary()))
    unfit = {found.row: found.reason for found in malformed}
    for row, (value, found) in enumerate(zip(case.values, rows_of(array), strict=True)):
        message = case.made()
        message.ParseFromString(value)
        if "required" in unfit.get(row, "") and b"Entry" in case.descriptors:
            continue  # google does not look at entries of a map whose keys come again
        if not message.IsInitialized() or has_other_types(message):
            assert row in unfit
        else:
            assert row not in unfit, malformed
            assert shown(found) == shown(row_of(message, options))


@given(st.randoms(use_true_random=True))
def test_what_google_reads_of_damaged_values_is_the_same(rng):
    """But for messages that another of their oneof has replaced, which google looks into, and entries of maps."""
    case, options = case_of(rng, good=False), ProtobufOptions()
    array, malformed = decoder_of(case, options, "c").decode(pa.array(case.values, pa.binary()))
    unfit = {found.row for found in malformed}
    for row, (value, found) in enumerate(zip(case.values, rows_of(array), strict=True)):
        message = case.made()
        try:
            message.ParseFromString(value)
            wanted = shown(row_of(message, options))
        except Exception:  # noqa: BLE001 - DecodeError; and text of proto2, which it looks at later
            continue
        has_map = b"Entry" in case.descriptors  # google takes entries with more than both as unknown
        if message.IsInitialized() and not has_other_types(message) and row not in unfit and not has_map:
            assert shown(found) == wanted


def has_other_types(message):
    """Whether a field that the message has was written with another type, or with an unknown number of an enum."""
    known = {field.number for field in message.DESCRIPTOR.fields}
    return any(field.field_number in known for field in UnknownFieldSet(message))


def row_of(message, options):
    found = {}
    for field in message.DESCRIPTOR.fields:
        of_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if of_map:
            value_field = field.message_type.fields_by_name["value"]
            key_field = field.message_type.fields_by_name["key"]
            held = getattr(message, field.name)
            found[field.name] = {
                value_of(key_field, key, options): value_of(value_field, held[key], options) for key in held
            }
        elif field.is_repeated:
            found[field.name] = [value_of(field, item, options) for item in getattr(message, field.name)]
        else:
            value = getattr(message, field.name)
            present = message.HasField(field.name) if field.has_presence else is_significant(field, value)
            default = field.has_default_value or (not field.has_presence and options.emit_defaults)
            found[field.name] = value_of(field, value, options) if present or default else None
    return found


def is_significant(field, value):
    return repr(value) != repr(field.default_value)


def value_of(field, value, options):
    if field.type == Of.TYPE_ENUM:
        return value if options.enums_as_ints else NAMES.get(value, f"UNKNOWN_ENUM_VALUE_Color_{value}")
    if field.type in (Of.TYPE_MESSAGE, Of.TYPE_GROUP):
        name = field.message_type.full_name
        if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
            return value.seconds * 1_000_000 + int(value.nanos / 1000)
        if options.unwrap and name in {f"google.protobuf.{each}Value" for each in WRAPPERS}:
            return row_of(value, options)["value"]
        return row_of(value, options)
    if field.type == Of.TYPE_STRING and isinstance(value, bytes):
        return text_of(value).decode()  # proto2's, which is no UTF-8
    bits = MASKS.get(field.type)
    upcast = options.upcast_unsigned and field.type in (Of.TYPE_UINT32, Of.TYPE_UINT64)
    if bits and not upcast and value >= 1 << bits - 1:
        return value - (1 << bits)
    return value


def shown(value):
    """NaN is itself."""
    if isinstance(value, dict):
        return {repr(shown(key)): shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    return repr(value)
