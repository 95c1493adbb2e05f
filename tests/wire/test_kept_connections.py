"""What a process keeps for the next one that needs it."""

import subprocess
import sys

from spark_kafka_group.wire.leaders import KeptConnections

FORKED = """
import os, sys
from spark_kafka_group.wire.leaders import KeptConnections
kept = KeptConnections(lambda what: print(os.getpid() == first, "closed", what, flush=True))
first = os.getpid()
kept.keep("cluster", "connections")
if os.fork() == 0:
    print("found", kept.pop("cluster"), flush=True)
    sys.exit()
os.wait()
"""


def test_what_is_taken_is_nobody_elses_and_what_is_kept_meanwhile_is_closed():
    closed = []
    kept = KeptConnections(closed.append)
    assert kept.pop("cluster") is None
    kept.keep("cluster", "first")
    assert kept.pop("cluster") == "first"
    assert kept.pop("cluster") is None
    for one in ("second", "first"):  # both had users at a time
        kept.keep("cluster", one)
    kept.keep("other cluster", "third")
    assert closed == ["second"]
    kept.close_all()
    assert sorted(closed) == ["first", "second", "third"]


def test_a_process_closes_what_it_has_kept_when_it_ends_and_one_that_it_forked_does_not_know_it():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["found None", "True closed connections"]
