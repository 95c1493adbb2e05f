"""How to_protobuf writes a struct as a message: fields by their names, numbers and times as the schema has them."""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from spark_kafka_group.executor.schemas.protobuf_schema import (
    ENUM,
    MAX_DEPTH,
    MESSAGE,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
    of_text,
)
from spark_kafka_group.executor.schemas.protobuf_types import WRAPPERS, is_time
from spark_kafka_group.executor.values.avro_plan import INTEGERS, TEXTS
from spark_kafka_group.executor.values.protobuf_program import DOES, WIRES, Wire
from spark_kafka_group.executor.values.write_plan import (
    SAME,
    Form,
    PlanMaker,
    Put,
    Step,
    WritePlan,
    part_of,
    place_of,
    places,
    varint,
)

ANY, SIGNED_32, UNSIGNED_32, NOT_NEGATIVE, UNSIGNED_64 = range(5)
"""The places of ``RANGES``."""
NUMBERS: dict[str, tuple[bool, bool, Form]] = {
    "int32": (False, True, Form.VARINT), "uint32": (False, False, Form.UNSIGNED),
    "sint32": (False, True, Form.ZIGZAG), "fixed32": (False, False, Form.FOUR_BYTES),
    "sfixed32": (False, True, Form.FOUR_BYTES),
    "int64": (True, True, Form.VARINT), "uint64": (True, False, Form.VARINT), "sint64": (True, True, Form.ZIGZAG),
    "fixed64": (True, False, Form.EIGHT_BYTES), "sfixed64": (True, True, Form.EIGHT_BYTES),
}  # fmt: skip
"""Of each type of whole numbers: whether it has 64 bits, whether it is signed, and its form."""
PLAIN: dict[tuple[type[DataType], str], Put] = {
    (BooleanType, "bool"): Put.BOOLEAN,
    (FloatType, "float"): Put.FLOAT,
    (FloatType, "double"): Put.FLOAT_AS_DOUBLE,
    (DoubleType, "double"): Put.DOUBLE,
    (StringType, "string"): Put.UTF8,
    (BinaryType, "bytes"): Put.BLOB,
}


TIMES: dict[str, type[DataType]] = {"Timestamp": TimestampType, "Duration": DayTimeIntervalType}


@lru_cache(maxsize=256)
def protobuf_plan(spark: DataType, schema_text: str) -> WritePlan:
    """The plan for a column of type `spark`, and the first message of a schema, as ``as_text`` has it.

    Raises
    ------
    ValueError
        When the schema cannot take the column.
    """
    schema = of_text(schema_text)
    if not isinstance(spark, StructType):
        raise ValueError(f"the column is {spark.simpleString()}, and Protobuf is written of a struct: make it a struct")
    maker = _ProtobufSteps(schema)
    maker.message(Put.RECORD, spark, schema.messages[schema.first[0]], "", 0)
    return maker.plan()


class _ProtobufSteps(PlanMaker):
    def __init__(self, schema: ProtobufSchema) -> None:
        super().__init__()
        self._schema = schema

    def message(
        self,
        do: Put,
        spark: StructType,
        message: ProtobufMessage,
        name: str,
        depth: int,
        place: int = -1,
        before: bytes = b"",
        null: bytes | None = None,
        end: int = 0,
    ) -> int:
        """Add the steps of a struct; the number of the first."""
        number, simple = self.begun(), message.name.rpartition(".")[2]
        found = places(spark, [field.name for field in message.fields], f"message {simple}", name)
        alternatives: dict[object, list[ProtobufField]] = {}
        for field in sorted(message.fields, key=lambda field: field.number):
            if field.name in found:
                alternatives.setdefault(field.number if field.oneof is None else (field.oneof,), []).append(field)
            elif field.required:
                path = part_of(name, field.name)
                raise ValueError(f"the column lacks the field {path}, which the schema requires: add it")
        children: list[int] = []
        for fields in alternatives.values():
            union = self.begun() if len(fields) > 1 else None
            made = tuple(self._field(field, spark, found[field.name], name, depth) for field in fields)
            if union is not None:
                names = f"the fields {', '.join(field.name for field in fields)}"
                self.steps[union] = Step(Put.UNION, name, SAME, null=b"", children=made, wanted=names)
                self.may_fail = True
            children += made if union is None else [union]
        self.steps[number] = Step(do, name, place, before, null, tuple(children), a=end, wanted=f"message {simple}")
        return number

    def _field(self, field: ProtobufField, of: StructType, place: int, name: str, depth: int) -> int:
        given = of.fields[place]
        path = part_of(name, given.name)
        if field.repeated:
            return self._repeated(field, given.dataType, path, depth, place)
        self.may_fail |= field.required and given.nullable
        null = None if field.required else b""
        return self._value(field, given.dataType, path, depth, place, _tag(field), null, not field.presence)

    def _repeated(self, field: ProtobufField, spark: DataType, name: str, depth: int, place: int) -> int:
        entry = self._schema.messages.get(field.type_name)
        is_map = entry is not None and entry.map_entry
        number = self.begun()
        if isinstance(spark, NullType):
            self.steps[number] = Step(Put.NULL, name, place, null=b"")
        elif entry is not None and is_map and isinstance(spark, MapType):
            parts = zip(entry.fields, (spark.keyType, spark.valueType), strict=True)
            children = tuple(
                self._value(part, kind, part_of(name, part.name), depth + 1, before=_tag(part)) for part, kind in parts
            )
            self.may_fail |= spark.valueContainsNull
            self.steps[number] = Step(
                Put.ENTRIES, name, place, null=b"", children=children, a=_tagged(field, Wire.BYTES)
            )
        elif not is_map and isinstance(spark, ArrayType):
            before = b"" if field.packed else _tag(field)
            item = self._value(field, spark.elementType, part_of(name, "element"), depth, before=before)
            self.may_fail |= spark.containsNull
            before = varint(_tagged(field, Wire.BYTES)) if field.packed else b""
            do = Put.PACKED if field.packed else Put.REPEATED
            self.steps[number] = Step(do, name, place, before, b"", (item,), implicit=field.packed)
        else:
            raise _refused(spark, "a map" if is_map else f"repeated {_shown(field)}", name)
        return number

    def _value(
        self,
        field: ProtobufField,
        spark: DataType,
        name: str,
        depth: int,
        place: int = -1,
        before: bytes = b"",
        null: bytes | None = None,
        implicit: bool = False,
    ) -> int:
        """Add the steps of a value, of which a field may have several; the number of the first."""
        if isinstance(spark, NullType):
            return self.added(Step(Put.NULL, name, place, null=null, wanted=_shown(field)))
        if field.kind == MESSAGE:
            return self._in_message(field, spark, name, depth, place, before, null)
        do, a, b, c, symbols = self._simple(field, spark, name)
        return self.added(Step(do, name, place, before, null, (), a, b, c, symbols, _shown(field), implicit))

    def _in_message(
        self,
        field: ProtobufField,
        spark: DataType,
        name: str,
        depth: int,
        place: int,
        before: bytes,
        null: bytes | None,
    ) -> int:
        if depth >= MAX_DEPTH:
            raise ValueError(f"Protobuf is written of a type of at most {MAX_DEPTH} levels, and readers take no more")
        message = self._schema.messages[field.type_name]
        end = _tagged(field, Wire.END_GROUP) if field.delimited else 0
        if isinstance(spark, StructType):
            return self.message(Put.MESSAGE, spark, message, name, depth + 1, place, before, null, end)
        number = self.begun()
        if is_time(message) and isinstance(spark, TIMES[message.name.rpartition(".")[2]]):
            rounded = int(isinstance(spark, DayTimeIntervalType))
            for do, part in zip((Put.SECONDS, Put.NANOS), message.fields, strict=True):
                form = NUMBERS[part.kind][2]
                self.added(Step(do, name, SAME, _tag(part), b"", (), 0, rounded, form, implicit=not part.presence))
            children: tuple[int, ...] = (number + 1, number + 2)
        elif message.name in WRAPPERS:
            part = message.fields[0]
            children = (self._value(part, spark, name, depth, SAME, _tag(part), implicit=True),)
        else:
            raise _refused(spark, _shown(field), name)
        self.steps[number] = Step(Put.WRAPPER, name, place, before, null, children, a=end, wanted=_shown(field))
        return number

    def _simple(self, field: ProtobufField, spark: DataType, name: str) -> tuple[Put, int, int, int, tuple[bytes, ...]]:
        base = StringType if isinstance(spark, TEXTS) else type(spark)
        if field.kind == ENUM:
            values = self._schema.enums[field.type_name].values
            self.may_fail = True
            if base is StringType:
                pairs = ((symbol.encode(), varint(number)) for symbol, number in values)
                return Put.SYMBOL, 0, 0, 0, tuple(part for pair in pairs for part in pair)
            if base in INTEGERS:
                return (
                    Put.NUMBERED,
                    INTEGERS[base],
                    0,
                    0,
                    tuple(n.to_bytes(8, "little", signed=True) for _, n in values),
                )
        elif (base, field.kind) in PLAIN:
            return PLAIN[base, field.kind], 0, 0, 0, ()
        elif field.kind in NUMBERS and (width := _width(spark, field)):
            is_long, signed, form = NUMBERS[field.kind]
            limits = ANY
            if width > 4 and not is_long:
                limits = SIGNED_32 if signed else UNSIGNED_32
            elif is_long and not signed:
                limits = {16: UNSIGNED_64, 8: ANY}.get(width, NOT_NEGATIVE)
            self.may_fail |= limits != ANY
            return Put.WHOLE, width, limits, form, ()
        raise _refused(spark, _shown(field), name)


def _width(spark: DataType, field: ProtobufField) -> int:
    """How many bytes a whole number of a column has; 0 where it is none that the field can be."""
    if isinstance(spark, DecimalType):
        return 16 if spark.scale == 0 and field.kind in ("uint64", "fixed64") else 0
    if isinstance(spark, DateType):
        return 0 if NUMBERS[field.kind][0] else 4
    return INTEGERS.get(type(spark), 0)


def _tagged(field: ProtobufField, wire: Wire | None = None) -> int:
    """The tag of a field, of its own wire type if none is given."""
    own = Wire.GROUP if field.delimited else WIRES.get(DOES[field.kind], Wire.VARINT)
    return field.number << 3 | (own if wire is None else wire)


def _tag(field: ProtobufField) -> bytes:
    return varint(_tagged(field))


def _shown(field: ProtobufField) -> str:
    """What messages call the type of a field."""
    if field.kind in (MESSAGE, ENUM):
        return f"{field.kind} {field.type_name.rpartition('.')[2]}"
    return field.kind


def _refused(spark: DataType, shown: str, name: str) -> ValueError:
    return ValueError(f"{place_of(name)} is {spark.simpleString()}, and the schema has {shown} there: cast it")
