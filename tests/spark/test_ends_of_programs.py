"""How a program in a `submit.orderly` block ends when Spark raises an error, in real Spark."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql.functions import udf
from support.sockets_of import sockets_of

from spark_kafka_group.tools.ending import checkpoint_of
from spark_kafka_group.tools.last_line import first_line, sentence


def test_the_checkpoint_of_a_query_that_failed_is_known_by_its_error(spark, tmp_path):
    def fail(df, batch):
        raise ValueError("no")

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(fail).start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    assert checkpoint_of(raised.value).endswith(f"{tmp_path}/checkpoint")
    assert checkpoint_of(ValueError("of no query")) == ""
    assert first_line(raised.value) == "ValueError: no"


def test_the_last_line_of_an_error_in_a_function_of_tasks_is_that_error(spark):
    @udf("string")
    def fail(number):
        raise KeyError("customer")

    with pytest.raises(PythonException) as raised:
        spark.range(1).select(fail("id")).collect()
    assert first_line(raised.value) == "KeyError: 'customer'"


def test_a_query_that_was_killed_when_it_began_is_told_what_to_delete(spark, tmp_path):
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / ".0.9d1e.tmp").touch()  # as a JVM leaves it that is killed there
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException) as raised:
        writer.start().awaitTermination(60)
    assert sentence(raised.value).startswith(f"the checkpoint has files in {offsets}, and no micro-batch: Spark was ")
    shutil.rmtree(offsets)
    assert writer.start().awaitTermination(60)


UNKNOWN_SOURCE = """
from pyspark.sql import SparkSession
from spark_kafka_group import submit
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with submit.orderly():
    spark.read.format("nothing").load()
"""


@pytest.mark.soak
def test_the_last_line_of_an_error_of_the_jvm_s_is_its_message():
    done = subprocess.run([sys.executable, "-c", UNKNOWN_SOURCE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert re.search("DATA_SOURCE_NOT_FOUND.*nothing", done.stderr.splitlines()[-1])


REFUSED_SINK = """
import sys
from pyspark.sql import SparkSession
from spark_kafka_group import GroupKafkaDataSource, submit
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(GroupKafkaDataSource)
servers, checkpoint, columns, name, value = sys.argv[1:]
with submit.orderly():
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().selectExpr(*columns.split(";"))
    writer = rows.writeStream.format("groupkafka").option("kafka.bootstrap.servers", servers).option("topic", "absent")
    writer.option(name, value).option("checkpointLocation", checkpoint).start().awaitTermination()
"""


@pytest.mark.parametrize(
    ("columns", "option", "said"),
    [
        pytest.param(
            "'x' value", ("kafka.linger", "5"), "option kafka.linger is not known; the nearest is kafka.linger.ms",
            marks=pytest.mark.soak,
        ),
        ("'x' value;1 city", ("includeHeaders", "true"), "column city is no part of a record: leave it out, or put it"),
        pytest.param(
            "'x' value", ("topic", "absent-topic"), "topic absent-topic does not exist: create it, or correct its name",
            marks=pytest.mark.soak,
        ),
    ],
)  # fmt: skip
def test_the_last_line_of_an_error_of_a_sink_is_its_sentence(kafka, tmp_path, columns, option, said):
    arguments = [kafka.bootstrap_servers, str(tmp_path / "checkpoint"), columns, *option]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", REFUSED_SINK, *arguments], capture_output=True, text=True, timeout=180, env=environment
    )  # fmt: skip
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]


LEFT_RUNNING = """
from pyspark.sql import SparkSession
from spark_kafka_group import submit
from spark_kafka_group.testing import wait_until
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with submit.orderly("billing"):
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.format("noop").trigger(processingTime="INTERVAL").start()
    wait_until(lambda: query.lastProgress, within=100)
"""


SAID = "stopped; left group billing. The program ended while a query ran: query.awaitTermination() waits for a query"


@pytest.mark.parametrize(
    ("end", "interval", "said"),
    [
        ("", "0 seconds", [SAID]),
        ("query.stop()", "10000 days", []),  # between two batches: Hadoop logs that its files' batch was interrupted
    ],
)
@pytest.mark.soak
def test_a_program_that_ends_while_a_query_runs_stops_it_and_says_so(end, interval, said):
    program = LEFT_RUNNING.replace("INTERVAL", interval) + end
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if line.startswith("stopped")] == said
    assert "Exception" not in done.stderr


STARTING = """
import os, signal, threading, time
from pyspark import SparkContext
from spark_kafka_group import submit

def interrupt():
    while UNTIL:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
with submit.orderly("billing"):
    submit.session("starting")
"""


@pytest.mark.parametrize(
    "until",
    [
        "not open(f'/proc/self/task/{os.getpid()}/children').read()",
        pytest.param("SparkContext._jvm is None", marks=pytest.mark.soak),
        pytest.param("SparkContext._active_spark_context is None", marks=pytest.mark.soak),
    ],
    ids=["JVM", "context", "session"],
)
def test_ctrl_c_while_spark_starts_is_one_line(until):
    program = [sys.executable, "-c", STARTING.replace("UNTIL", until)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == "stopped; left group billing"


WITHOUT_JVM = """
from pyspark import SparkContext
from spark_kafka_group import submit

with submit.orderly("billing"):
    spark = submit.session("killed")
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    query.processAllAvailable()
    print(SparkContext._gateway.proc.pid, flush=True)
    query.awaitTermination()
"""


@pytest.mark.parametrize(
    "held",
    [contextlib.nullcontext, sockets_of],
    ids=["", "its sockets outlive it"],
)
@pytest.mark.soak
def test_a_jvm_that_is_killed_is_the_last_line(held):
    program = [sys.executable, "-c", WITHOUT_JVM]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            jvm = int(running.stdout.readline())
            with held(jvm):
                os.kill(jvm, signal.SIGKILL)
                *_, lines = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 1
    assert lines.splitlines()[-1] == (
        "Spark's JVM has ended: it was killed, perhaps as memory was short. Start the program again: its queries go on "
        "from their checkpoints"
    )


SILENCED = """
from pyspark.sql import SparkSession
from spark_kafka_group.tools import ending
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
err = spark._jvm.java.lang.System
err.err.println("before")
ending._silence(spark._jvm)
err.err.println("after")
spark._jvm.org.apache.logging.log4j.LogManager.getLogger("x").error("logged")
"""


@pytest.mark.soak
def test_a_jvm_that_is_silenced_writes_nothing():
    done = subprocess.run([sys.executable, "-c", SILENCED], capture_output=True, text=True, timeout=120)
    lines = done.stderr.splitlines()
    assert "before" in lines
    assert "after" not in lines
    assert "logged" not in done.stderr


BY_CONNECT = """
from spark_kafka_group import submit
with submit.orderly():
    session = submit.session("by connect")
    print(type(session).__module__, session.range(3).count())
    session.stop()
"""


@pytest.mark.soak
def test_a_session_of_spark_connect_is_made_where_the_environment_says_so():
    program = [sys.executable, "-c", BY_CONNECT]
    environment = os.environ | {"SPARK_API_MODE": "connect"}
    done = subprocess.run(program, capture_output=True, text=True, timeout=240, env=environment)
    assert done.stdout.splitlines() == ["pyspark.sql.connect.session 3"], done.stderr
    assert done.returncode == 0
