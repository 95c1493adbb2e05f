"""Programs in a `submit.orderly` block end with one line and the exit code of shells. Without Spark: quick."""

import dataclasses
import json
import os
import pty
import subprocess
import sys

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_group.driver.membership.other_sources import OtherSources
from spark_kafka_group.errors import BrokerError, FencedError, MissingPackageError
from spark_kafka_group.options import Options
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.options.transacting import Transacting, TransactionOptions
from spark_kafka_group.tools.ending import _groups_in, _Left, _stopped
from spark_kafka_group.tools.last_line import JVM_ENDED, first_line, sentence
from spark_kafka_group.tools.transactions import planned_writes
from spark_kafka_group.transactions import last_batch
from spark_kafka_group.transactions.last_batch import LastBatch
from spark_kafka_group.values.exactly_once import ProducerIdAndEpoch
from spark_kafka_group.values.files import READERS_FOLDER

PROGRAM = """
import gc, hashlib, json, os, signal, subprocess, sys, threading, time
from types import SimpleNamespace
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from spark_kafka_group import BrokerError, submit
from spark_kafka_group.tools import ending, last_line

def start_jvm():
    jvm = subprocess.Popen("cat", stdin=subprocess.PIPE)
    SparkContext._gateway = SimpleNamespace(proc=jvm, _gateway_client=SimpleNamespace())
    return jvm

def end_jvm(how):
    last_line.NOTICED_S = 0.1
    jvm = start_jvm()
    ending.take_signals()
    if how == "jvm-killed-and-started-again":
        jvm.kill()
        try:
            time.sleep(20)
        except Exception as error:
            print(type(error).__name__, flush=True)
        time.sleep(1)  # before it tries again
        start_jvm()
        end("SIGTERM")
    elif how.startswith("jvm-killed-and-tried-again-until-"):
        jvm.kill()
        stop = threading.Timer(1, os.kill, (os.getpid(), getattr(signal, how.rpartition("-")[2])))
        for _ in range(40):
            try:
                time.sleep(0.5)
            except Exception as error:
                print(type(error).__name__, flush=True)
                stop.start()
    elif how == "jvm-killed-and-stopped-in-the-same-moment":
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        jvm.kill()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)  # 0.5 s without a signal, and threads run
        time.sleep(0.2)
    elif how == "jvm-killed-and-caught":
        class Session:
            @property
            def streams(self):
                time.sleep(20)  # for an answer that never comes
                print("asked")
        SparkSession._instantiatedSession = Session()
        jvm.kill()
        try:
            time.sleep(20)
        except Exception as error:
            print(type(error).__name__, flush=True)
    elif how == "jvm-killed-and-cleaned-up-after":
        try:
            jvm.kill()
            raise Py4JNetworkError("Error while sending or receiving")  # as py4j does at once
        finally:
            time.sleep(1)  # the interruption would come here
            print("cleaned up", flush=True)
    elif how == "jvm-killed-and-stopped-at-once":
        class Session:
            @property
            def streams(self):
                time.sleep(20)  # for an answer that never comes
        SparkSession._instantiatedSession = Session()
        last_line.NOTICED_S = 5
        jvm.kill()
        while ending._Block.current._ended is None:
            time.sleep(0.01)
        signal.setitimer(signal.ITIMER_REAL, 15)  # ends it, if it asks the JVM
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    elif how.startswith("jvm-killed-and-taken-"):
        signal.signal(getattr(signal, how.rpartition("-")[2]), lambda *_: print("taken", flush=True))
        jvm.kill()
    elif how == "jvm-killed-while-SIGCONT-is-others":
        before = signal.signal(signal.SIGCONT, signal.SIG_IGN)
        jvm.kill()
        time.sleep(1)
        signal.signal(signal.SIGCONT, before)
        time.sleep(20)
    elif how == "jvm-killed-twice":
        for _ in range(2):
            jvm.kill()
            try:
                time.sleep(20)
            except Exception as error:
                print(type(error).__name__, flush=True)
            jvm = start_jvm()
            ending.take_signals()
        jvm.stdin.close()
    elif how == "jvm-killed-by-the-program":
        SparkContext._gateway = None  # as before another one is started
        jvm.kill()
    else:
        jvm.stdin.close()
    jvm.wait()
    time.sleep(1)

def end(how):
    if how == "well":
        print("done")
    elif how.startswith("jvm"):
        end_jvm(how)
    elif how.startswith("continued"):
        os.kill(os.getpid(), signal.SIGCONT)
        print("done")
    elif how == "error":
        raise BrokerError("connecting to nowhere: no answer")
    elif how == "lost":
        raise BrokerError("records are gone: move the group's offset")
    elif how == "bug":
        raise KeyError("customer")
    elif how == "exit":
        sys.exit(7)
    elif how.startswith("finalizer"):
        class Finalized:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)
        Finalized()
        if how == "finalizer":
            time.sleep(20)
    else:
        os.kill(os.getpid(), getattr(signal, how))
        signal.pause()

def program(how, *groups):
    if how.startswith("continued"):
        signal.signal(signal.SIGCONT, lambda *_: print("continued", flush=True))
    if how == "continued-by-a-handler-in-C":
        known = signal.getsignal
        signal.getsignal = lambda number: None if number == signal.SIGCONT else known(number)  # as it says of one
    with submit.orderly(*groups):
        end(how)
    print("went on")

# Each in a process of its own, all at the same time, and what they import is imported once.
gc.freeze()  # or each looks through all of that as it ends, which takes half of its time
children = {}
for arguments in json.loads(sys.argv[1]):
    files = os.memfd_create("out"), os.memfd_create("err")
    child = os.fork()
    if child == 0:
        os.dup2(files[0], 1), os.dup2(files[1], 2)
        program(*arguments)
        sys.exit()
    children[" ".join(arguments)] = child, files
ends = {}
for name, (child, files) in children.items():
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ends[name] = [code, *(os.pread(file, 10_000, 0).decode().splitlines() for file in files)]
print(json.dumps(ends))
"""
STAYS = "stopped; group billing: a member may stay until kafka.session.timeout.ms is over"  # nobody has stopped it
ENDS = {
    "well billing": [0, ["done", "went on"], []],
    "SIGINT billing": [130, [], ["stopped; left group billing"]],
    "SIGTERM billing tax": [143, [], ["stopped; left groups billing, tax"]],
    "SIGTERM": [143, [], ["stopped"]],
    "finalizer billing": [143, [], ["stopped; left group billing"]],
    "finalizer-at-the-end billing": [143, [], ["stopped; left group billing"]],
    "continued billing": [0, ["continued", "done", "went on"], []],
    "continued-by-a-handler-in-C billing": [0, ["continued", "done", "went on"], []],
    "error billing": [1, [], ["connecting to nowhere: no answer"]],
    "lost billing": [1, [], ["records are gone: move the group's offset. This query's group: billing"]],
    "lost billing tax": [1, [], ["records are gone: move the group's offset"]],
    "lost group": [1, [], ["records are gone: move the group's offset"]],
    "exit billing": [7, [], []],
    "jvm-ended-by-the-program billing": [0, ["went on"], []],
    "jvm-killed-by-the-program billing": [0, ["went on"], []],
    "jvm-killed-and-caught billing": [0, ["Py4JNetworkError", "went on"], []],
    "jvm-killed-and-taken-SIGTERM billing": [1, [], [JVM_ENDED]],
    "jvm-killed-and-taken-SIGCONT billing": [0, ["went on"], []],
    "jvm-killed-and-cleaned-up-after billing": [1, ["cleaned up"], [JVM_ENDED]],
    "jvm-killed-and-stopped-at-once billing": [130, [], [STAYS]],
    "jvm-killed-and-stopped-in-the-same-moment billing": [143, [], [STAYS]],
    "jvm-killed-while-SIGCONT-is-others billing": [1, [], [JVM_ENDED]],
    "jvm-killed-twice billing": [0, ["Py4JNetworkError", "Py4JNetworkError", "went on"], []],
    "jvm-killed-and-started-again billing": [143, ["Py4JNetworkError"], ["stopped; left group billing"]],
    "jvm-killed-and-tried-again-until-SIGINT billing": [130, ["Py4JNetworkError"], [STAYS]],
    "jvm-killed-and-tried-again-until-SIGTERM billing": [143, ["Py4JNetworkError"], [STAYS]],
}
BUG = "bug billing"


@pytest.fixture(scope="module")
def ended():
    """Exit code and lines of each program."""
    programs = json.dumps([how.split() for how in (*ENDS, BUG)])
    done = subprocess.run([sys.executable, "-c", PROGRAM, programs], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("how", ENDS)
def test_a_program_ends_with_one_line_and_the_exit_code_of_shells(ended, how):
    assert ended[how] == ENDS[how]


def test_on_a_terminal_the_line_takes_the_place_of_a_bar_of_spark():
    program = """
import os, signal, sys
from spark_kafka_group import submit
with submit.orderly("billing"):
    print("[Stage 0:>      (0 + 1) / 1]", end="", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
"""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    try:
        ended = subprocess.run([sys.executable, "-c", program], stderr=theirs, env=environment, check=False)
        assert ended.returncode == 130
        assert os.read(ours, 10_000).decode() == ("[Stage 0:>      (0 + 1) / 1]\r\x1b[Kstopped; left group billing\r\n")
    finally:
        os.close(ours)
        os.close(theirs)


def test_an_error_that_is_not_known_has_its_traceback_and_its_sentence_last(ended):
    code, _, (first, *_, last) = ended[BUG]
    assert (code, first, last) == (1, "Traceback (most recent call last):", "KeyError: 'customer'")


REPEATED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset: \
Traceback (most recent call last):
  File "outage.py", line 1, in attempt
spark_kafka_group.errors.BrokerError: connecting to a:1: no answer

The above exception was the direct cause of the following exception:

spark_kafka_group.errors.FencedError: group billing: another process has joined
 SQLSTATE: 38000"""


OF_A_USER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. Reason: An \
exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "orders.py", line 7, in save
    table[order]
    ~~~~~^^^^^^^
KeyError: 'customer'
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Logical Plan: none"""


def test_an_error_in_a_function_is_that_error_where_spark_repeats_it():
    assert first_line(StreamingQueryException(OF_A_USER)) == "KeyError: 'customer'"
    assert first_line(RuntimeError("[STREAM_FAILED] first\nsecond")) == "[STREAM_FAILED] first"


def test_the_sentence_of_an_error_is_this_package_s_also_where_spark_repeats_it():
    assert sentence(FencedError("replaced")) == "replaced"
    assert sentence(MissingPackageError("pip install it")) == "pip install it"
    assert sentence(RuntimeError(REPEATED)) == "group billing: another process has joined"
    assert sentence(RuntimeError(str(BrokerError("no")))) is None


def test_what_spark_says_of_the_sink_is_what_to_do():
    update = "[STREAM_FAILED] terminated: requirement failed: groupkafka does not support Update mode. SQLSTATE: XXKST"
    assert "write with foreachBatch" in sentence(RuntimeError(update))
    mode = (
        '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "groupkafka" cannot be written in the "ErrorIfExists" mode'
    )
    assert sentence(RuntimeError(mode)) == 'a batch write to groupkafka needs mode("append")'
    assert sentence(RuntimeError(mode.replace("groupkafka", "kafka"))) is None


def test_a_write_that_was_planned_and_not_ended_is_told_in_the_last_line(tmp_path):
    client = Options.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}).client
    planned = LastBatch(ProducerIdAndEpoch(1, 2), 900_000, True, None, 17, ended=False)
    for prefix, ended in (("open", False), ("ended", True)):
        options = TransactionOptions(client, Transacting(prefix))
        last_batch.leave(options, tmp_path, dataclasses.replace(planned, ended=ended))
    (tmp_path / "groupkafka-transactions-0.json").write_text("half")
    found = tuple(planned_writes(tmp_path))
    assert found == (("open", 900_000),)
    line = _stopped(("billing",), _Left(groups=True, open=found))
    assert line.startswith("stopped; left group billing. Transactions of kafka.transactional.id open may be open: ")
    assert line.endswith("until the query is started again, or 900 s at most")
    assert _stopped(("billing",), _Left(groups=True)) == "stopped; left group billing"
    left = _Left(groups=True, named=("audit", "spark-groupkafka-5f0c"))
    assert _stopped(("billing",), left) == "stopped; left groups audit, spark-groupkafka-5f0c"


def test_the_groups_of_the_last_line_are_those_of_the_readers_that_live(tmp_path):
    subscription = Subscription(topics=("orders",))
    sources = [OtherSources(tmp_path, group, group, subscription) for group in ("audit", "billing")]
    assert _groups_in(tmp_path / READERS_FOLDER) == ("audit", "billing")
    sources[1].close()
    assert _groups_in(tmp_path / READERS_FOLDER) == ("audit",)
    sources[0].close()
