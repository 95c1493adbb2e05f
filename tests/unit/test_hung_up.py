"""A process whose connection Spark has closed ends without a traceback; other errors keep theirs."""

import pytest

DAEMON = """
import importlib.util, sys, traceback
from spark_kafka_group.spark.spark_processes import end_quietly

end_quietly()
assert traceback is sys.modules["traceback"]  # in a program of the user's
__spec__ = importlib.util.find_spec("pyspark.daemon")
end_quietly()
for error in (BrokenPipeError(), ValueError("else")):
    try:
        raise error
    except BaseException:
        traceback.print_exc()
"""


def test_a_daemon_s_worker_prints_no_broken_pipe_and_every_other_error(python):
    printed = python("-c", DAEMON).stderr
    assert printed.count("Traceback") == 1
    assert printed.endswith("ValueError: else\n")


READER = """
import importlib.util
from spark_kafka_group.spark.spark_processes import READER, end_quietly

__spec__ = importlib.util.find_spec(READER)
end_quietly()
raise """


@pytest.mark.parametrize(
    ("error", "last_lines"), [("BrokenPipeError()", []), ("ValueError('else')", ["ValueError: else"])]
)
def test_a_reader_s_process_prints_no_broken_pipe_and_every_other_error(error, last_lines, python):
    ended = python("-c", READER + error)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1:] == last_lines
