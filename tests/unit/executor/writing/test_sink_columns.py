"""Which of a DataFrame's columns become parts of records, and which DataFrames are refused."""

import pytest
from pyspark.sql.types import StructType

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.writing.sink_columns import SinkColumns
from spark_kafka_group.options.sink_options import SinkOptions


def fields(ddl):
    """Spark's fields of a schema, without a JVM to parse DDL with."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(), "binary": types.BinaryType(), "int": types.IntegerType(),
        "bigint": types.LongType(), "timestamp": types.TimestampType(), "varchar": types.VarcharType(9),
        "collated": types.StringType("UNICODE_CI"), "counts": types.MapType(types.StringType(), types.IntegerType()),
        "headers": types.ArrayType(StructType().add("key", types.StringType(), False).add("value", types.BinaryType())),
        "texts": types.ArrayType(StructType().add("key", types.StringType()).add("value", types.StringType())),
    }  # fmt: skip
    schema = StructType()
    for column in ddl.split(", "):
        name, kind = column.rsplit(" ", 1)
        schema = schema.add(name, kinds[kind])
    return schema.fields


def columns(ddl, **options):
    return SinkColumns.from_fields(fields(ddl), SinkOptions.parse({"kafka.bootstrap.servers": "localhost:1"} | options))


def refusal(ddl, **options):
    with pytest.raises(OptionError) as raised:
        columns(ddl, **options)
    return str(raised.value)


def test_each_column_is_found_wherever_it_is():
    everything = "partition int, key binary, headers headers, value string, topic string"
    assert columns(everything) == SinkColumns(value=3, key=1, topic=4, headers=2, partition=0)
    assert columns("originPartition int, value string", topic="t") == SinkColumns(value=1, origin_partition=0)
    assert columns("ORIGINPARTITION int, value string", topic="t") == SinkColumns(value=1, origin_partition=0)
    assert columns("value varchar", topic="t") == SinkColumns(value=0)
    assert columns("value collated, topic varchar") == SinkColumns(value=0, topic=1)


def test_the_option_topic_comes_before_the_column_which_may_then_have_any_type():
    assert columns("topic int, value string", topic="t") == SinkColumns(value=1)


def test_headers_may_be_left_out_whatever_they_are():
    assert columns("headers int, value string", topic="t", includeHeaders="false") == SinkColumns(value=1)


def test_a_name_in_another_case_is_taken_and_two_that_differ_in_case_alone_are_refused():
    assert columns("VALUE string, Topic string") == SinkColumns(value=0, topic=1)
    assert refusal("value string, VALUE string", topic="t").startswith("column VALUE is no part of a record: leave it")
    assert refusal("VALUE string, Value string", topic="t") == "there are 2 columns named value: leave one"


def test_rows_as_a_source_reads_them_can_be_written():
    read = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert columns(read) == SinkColumns(value=1, key=0, topic=2, partition=3)


def test_what_is_missing_is_named():
    assert refusal("key string", topic="t").startswith("there is no column value, which every record needs: ")
    assert refusal("value string") == "no topic is named: set option topic, or give the rows a column topic"


def test_a_column_that_is_no_part_of_a_record_is_refused_and_not_left_out_silently():
    assert refusal("value string, header headers", topic="t").startswith("column header is no part of a record: leave")


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("value int", "column value has the type int and must be string or binary: cast it, as in CAST(value A"),
        ("Key bigint, value string", "column Key has the type bigint and must be string or binary: cast it, as in "),
        ("value counts", "column value has the type map<string,int> and must be string or binary: take to_json(value)"),
        ("topic binary, value string", "column topic has the type binary and must be string: cast it, as in CAST(t"),
        ("partition string, value string", "column partition has the type string and must be int: cast it, as in CAST"),
        ("headers texts, value string", "column headers has the type array<struct<key:string,value:string>> and must"),
    ],
)  # fmt: skip
def test_a_column_of_another_type_is_refused(ddl, text):
    assert refusal(ddl, **({} if "topic" in ddl else {"topic": "t"})).startswith(text)
