"""The data source as Spark handles it: pickled, printed, registered."""

import pickle
import re
import subprocess
import sys

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from support.source_tree import ROOT

import spark_kafka_group
from spark_kafka_group import GroupKafkaDataSource, OffsetOutOfRangeError, OptionError
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition

SETTINGS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.group.id": "s3cret"}


@pytest.mark.parametrize("dumps", [pickle.dumps, CloudPickleSerializer().dumps])
def test_source_readers_and_tasks_pickle(dumps):
    source = GroupKafkaDataSource(SETTINGS)
    stream = source.streamReader(None)
    offset = stream.initialOffset()  # the driver's half has started; it stays behind
    for thing in (source, stream, source.reader(None), ReadTask((OffsetRange(TopicPartition("t", 0), 1, 2),))):
        pickle.loads(dumps(thing))
    assert pickle.loads(dumps(stream)).initialOffset() != offset


def test_nothing_of_the_options_values_is_in_a_repr():
    source = GroupKafkaDataSource(SETTINGS)
    shown = [repr(source), repr(source.streamReader(None)), repr(source.reader(None)), repr(source._options())]
    assert "s3cret" not in "".join(shown)


@pytest.mark.parametrize(
    "first_call",
    [
        lambda reader: reader.getDefaultReadLimit(),
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.initialOffset(),
        lambda reader: reader.latestOffset({}, ReadAllAvailable()),
        lambda reader: reader.partitions({}, {"t": {"0": 1}}),
        lambda reader: reader.commit({}),
        lambda reader: reader.reportLatestOffset(),
    ],
    ids=["limit", "available now", "initial", "latest", "partitions", "commit", "report"],
)
@pytest.mark.parametrize(
    ("columns", "more", "said"),
    [("value string", {}, "has the columns value string"), (None, {"subscrib": "t"}, "the nearest is subscribe")],
)
def test_an_error_of_a_stream_s_reader_is_its_first_call_s_and_not_lost(first_call, columns, more, said):
    schema = None if columns is None else StructType().add(*columns.split())
    reader = GroupKafkaDataSource(SETTINGS | more).streamReader(schema)
    with pytest.raises(OptionError, match=said):
        first_call(reader)
    reader.stop()


def test_a_given_schema_without_nulls_is_refused_as_spark_would_leave_is_null_out_of_plans():
    source = GroupKafkaDataSource(SETTINGS | {"columns": "key,value"})
    source.reader(StructType().add("key", "binary").add("value", "binary"))
    with pytest.raises(OptionError, match="has NOT NULL for value: leave it out"):
        source.reader(StructType().add("key", "binary").add("value", "binary", nullable=False))


IMPORTING = """
import os, sys
before = dict(os.environ)
STARTS = ("subprocess.Popen", "socket.connect", "os.fork", "os.exec")
sys.addaudithook(lambda event, _: event in STARTS and print(event))
import spark_kafka_group
from spark_kafka_group import *
import pyspark_groupkafka, spark_kafka_group.executor.decode
print("kafka" in sys.modules)
from spark_kafka_group import __main__, pictures, submit
print("matplotlib" in sys.modules, os.environ == before)
"""


def test_an_import_starts_nothing_changes_no_variable_and_takes_neither_kafka_python_nor_matplotlib():
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


def test_a_read_error_keeps_its_facts_when_it_is_pickled():
    error = pickle.loads(pickle.dumps(OffsetOutOfRangeError("orders", 3, 120, "gone")))
    assert (error.topic, error.partition, error.offset, str(error)) == ("orders", 3, 120, "orders-3: offset 120: gone")


def test_public_names_are_sorted_and_there():
    assert spark_kafka_group.__all__ == sorted(spark_kafka_group.__all__)
    assert all(hasattr(spark_kafka_group, name) for name in spark_kafka_group.__all__)


def test_the_tree_of_errors_in_the_docstring_is_the_tree():
    from spark_kafka_group import errors

    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__)) | {"GroupKafkaError"}
    assert drawn == {name for name, thing in vars(errors).items() if isinstance(thing, type)}


def test_the_installed_package_is_found_by_spark():
    from pkgutil import iter_modules

    assert "pyspark_groupkafka" in {module.name for module in iter_modules()}
    from pyspark_groupkafka import DefaultSource

    assert DefaultSource.name() == "groupkafka"


def test_no_word_of_the_jobs_needs_more_than_public_names():
    imports = re.findall(
        r"from (spark_kafka_group\S*) import", "".join(p.read_text() for p in (ROOT / "jobs").glob("*.py"))
    )
    assert set(imports) <= {"spark_kafka_group", "spark_kafka_group.testing"}
