"""A program of an environment that is not activated: Spark's workers are the `python3` of PATH, without the package."""

import os
import subprocess
import sys

import pyarrow as pa
import pyspark
import pytest

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.spark.installation import require_found
from spark_kafka_group.spark.spark_processes import map_in_arrow

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from spark_kafka_group import (
    GroupKafkaDataSource, GroupKafkaListener, WorkersPythonError, group_batch, read_where, submit
)

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"}
for use in (
    lambda: submit.orderly("g").__enter__(),
    lambda: submit.session("a program for spark-submit"),
    lambda: group_batch(spark, OPTIONS).__enter__(),
    lambda: read_where(spark, OPTIONS, "offset > 3"),
    lambda: GroupKafkaListener(spark).attach(),
    lambda: spark.dataSource.register(GroupKafkaDataSource),
):
    try:
        use()
    except (WorkersPythonError, SystemExit) as error:
        print(error)
spark.stop()
"""


@pytest.fixture
def another_python3(tmp_path):
    """A folder for PATH with a `python3` that is not of this environment."""
    (tmp_path / "python3").symlink_to(sys._base_executable)
    return tmp_path


def test_processes_of_an_installed_spark_import_the_pyspark_that_has_bytecode(spark):
    def file_of_pyspark(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__] * batch.num_rows})

    (row,) = spark.range(1).mapInArrow(file_of_pyspark, "file string").collect()
    assert row.file == pyspark.__file__


@pytest.mark.soak
def test_each_use_of_the_package_says_in_one_sentence_that_workers_cannot_find_it(another_python3):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    path = os.pathsep.join([str(another_python3), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=another_python3,
        env=kept | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    sentence = (
        "Spark starts python3 for its workers, which cannot import spark_kafka_group: set the environment variable "
        f"PYSPARK_PYTHON to a Python that can, as {sys.executable}, before the SparkSession is made"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [sentence] * 6


INTERRUPTED = """
from pyspark.sql import SparkSession
from spark_kafka_group import submit

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with submit.orderly("g"):
    print("the block has begun")
"""


def test_ctrl_c_while_spark_starts_its_first_python_ends_the_program_with_one_line(tmp_path):
    python = tmp_path / "python"
    once = f'mkdir "{tmp_path}/pressed" 2> /dev/null && kill -INT "$PROGRAM"'  # a second Ctrl-C would end it at once
    python.write_text(f'#!/bin/sh\n{once}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", 'PROGRAM=$$ exec "$@"', "sh", sys.executable, "-c", INTERRUPTED],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert done.stderr.endswith("stopped; left group g\n")
    assert "Traceback" not in done.stderr


def test_workers_that_find_the_package_are_not_complained_about(spark):
    require_found(spark)
    assert GroupKafkaDataSource.name() == "groupkafka"  # which registering asks for


def test_a_worker_that_only_maps_rows_prints_no_broken_pipe(spark):
    def printer_of_errors(batches):
        yield pa.record_batch({"module": [sys.modules["__main__"].traceback.print_exc.__module__]})

    conf = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
    spark.conf.set(conf, "false")  # another environment, and so a worker that has read nothing yet
    try:
        [row] = map_in_arrow(spark.range(0, 1, 1, 1), printer_of_errors, "module string").collect()
    finally:
        spark.conf.unset(conf)
    assert row.module == "spark_kafka_group.spark.spark_processes"
