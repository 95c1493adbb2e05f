"""The last line of a program with queries: what an error says in one sentence, and what is to be done."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException

from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.spark.installation import why_no_jvm
from spark_kafka_group.text.foreign_text import printable

NOTICED_S = 2.0  # within this time the system says of a process that it has ended, after its connections have
JVM_ENDED = (
    "Spark's JVM has ended: it was killed, perhaps as memory was short. Start the program again: its queries go on "
    "from their checkpoints"
)
OURS = re.compile(r"spark_kafka_group\.errors\.\w+: (.+)")
OF_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
"""What Spark repeats of an exception in Python: of a function for foreachBatch, or of one that tasks call."""
OF_SPARK = {
    re.compile("groupkafka does not support Update mode"): (
        'outputMode("update") is not for sinks in Python, as groupkafka is one: write with foreachBatch, or take '
        'outputMode("append")'
    ),
    re.compile("The maximum arrow batch size should be greater than 0"): (
        "spark.sql.execution.arrow.maxRecordsPerBatch must be above 0 for a source in Python: unset it, as groupkafka "
        "makes batches of its own size"
    ),
    re.compile('UNSUPPORTED_DATA_SOURCE_SAVE_MODE.*"groupkafka"'): 'a batch write to groupkafka needs mode("append")',
    re.compile(
        r"STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY\] The checkpoint location (?:file:)?(\S+) should be empty"
    ): (
        r"the checkpoint has files in \1, and no micro-batch: Spark was killed when it began the first one, or another "
        r"query uses the checkpoint. In the first case delete that folder, in the second name another checkpoint, and "
        r"another output folder if it writes files"
    ),
}
"""What Spark says without asking this package, and what a user is to do."""
_arguments: dict[str, str] = {}  # arguments of this program by the options that they stand for


def given_as(arguments: Mapping[str, str]) -> None:
    """Have errors name these arguments of the program in place of the options that they stand for."""
    _arguments.clear()
    _arguments.update(arguments)


def as_given(text: str) -> str:
    """The text of an error with the program's arguments in place of options."""
    for option, argument in _arguments.items():
        text = re.sub(rf"(?<![\w.]){re.escape(option)}(?![\w.]*\w| to\b)", argument, text)  # not the verb
    return text


def query_of(line: str, checkpoint: str, groups: tuple[str, ...]) -> str:
    """The checkpoint and the group that an error is about, behind its text, where that does not name them."""
    named = [f"checkpoint: {checkpoint}"] if checkpoint and "checkpoint" in line else []
    if len(groups) == 1 and "the group" in line and groups[0] not in line:
        named.append(f"group: {groups[0]}")
    return f". This query's {', '.join(named)}" if named else ""


def print_last(line: str) -> None:
    sys.stdout.flush()
    print(f"{_over()}{printable(line)}", file=sys.stderr, flush=True)


def _over() -> str:
    """What puts a line in place of ``^C``, or of Spark's bar of a stage, where a terminal shows them."""
    if not sys.stderr.isatty():
        return ""
    return "\r" if os.environ.get("TERM", "dumb") == "dumb" else "\r\x1b[K"


def sentence(error: BaseException) -> str | None:
    """What an error says in one sentence: this package's own, also where Spark repeats it, what is to be done about
    Spark's, that of Spark's analysis, or that Spark's JVM is gone. None for all others."""
    if isinstance(error, Py4JError | ConnectionError) and jvm_has_ended():
        return JVM_ENDED
    if isinstance(error, GroupKafkaError):
        return str(error)
    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        return why_no_jvm()
    found = OURS.findall(str(error))
    if found:
        return str(found[-1])
    for pattern, told in OF_SPARK.items():
        if found_there := pattern.search(str(error)):
            return found_there.expand(told)
    return first_line(error) if isinstance(error, AnalysisException) else None


def jvm_process() -> subprocess.Popen[bytes] | None:
    """The JVM that this program has started; where a JVM has started the program, both end."""
    return getattr(SparkContext._gateway, "proc", None)


def left_connection() -> Any:
    """This thread's connection to the JVM, which its next call leaves alone, as py4j has it for KeyboardInterrupt: the
    answer to a call that a signal interrupted, such as ``awaitTermination()``, may come later."""
    with contextlib.suppress(AttributeError):  # without a JVM; and with PYSPARK_PIN_THREAD=false each call takes any
        client: Any = SparkContext._gateway._gateway_client  # type: ignore[union-attr]
        connection = client.get_thread_connection()
        client.thread_connection.connection = None
        return connection
    return None


def jvm_has_ended() -> bool:
    process = jvm_process()
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process is not None and process.wait(NOTICED_S) is not None
    return False


def first_line(error: BaseException) -> str:
    text = (error.getMessage() if isinstance(error, PySparkException) else None) or str(error)
    if isinstance(error, Py4JJavaError):
        text = text.removeprefix(error.errmsg).removeprefix(": ")  # what precedes the message names the call only
    raised = OF_PYTHON.findall(text)
    return str(raised[-1]) if raised else text.strip().split("\n")[0]
