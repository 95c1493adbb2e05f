"""Python programs that start where pyspark is imported already: forks of one process, none of which imports it."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from support.source_tree import ROOT

SERVER = """
import gc, json, os, runpy, sys
import pyarrow, pyspark.sql.datasource
gc.freeze()  # or each fork looks through all of that as it ends, which takes as long as the import
for line in sys.stdin:
    (first, *rest), environment = json.loads(line)
    files = os.memfd_create("out"), os.memfd_create("err")
    child = os.fork()
    if child == 0:
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *files)):
            os.dup2(file, number)
        os.environ.clear(), os.environ.update(environment)
        if first == "-c":
            code, *rest = rest
            sys.argv = [first, *rest]
            exec(compile(code, "<string>", "exec"), globals())
        else:
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    printed = [os.pread(file, 1_000_000, 0).decode() for file in files]
    for file in files:
        os.close(file)
    print(json.dumps([code, *printed]), flush=True)
"""


class Ended(NamedTuple):
    """How a program ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


@contextlib.contextmanager
def forks() -> Iterator[Callable[..., Ended]]:
    """A function that runs a program: a file, or `-c` and code, with arguments, and variables of its environment."""
    command, places = [sys.executable, "-c", SERVER], os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=places) as server:

        def run(*arguments: object, **environment: str) -> Ended:
            program = json.dumps([list(map(str, arguments)), environment or dict(os.environ)])
            print(program, file=server.stdin, flush=True)
            return Ended(*json.loads(server.stdout.readline()))

        yield run
