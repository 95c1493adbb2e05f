"""Several cells at a time."""

import sys
import time

import pytest

from faults import lanes


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_commands_run_at_the_same_time_and_those_that_fail_are_counted(capfd, tmp_path):
    meet = "import pathlib, sys, time\nhere = pathlib.Path(sys.argv[1])\n"
    meet += "(here / sys.argv[2]).touch()\nwhile len(list(here.iterdir())) < 2: time.sleep(0.01)\nprint(sys.argv[2])\n"
    both = [[*python(meet), str(tmp_path), name] for name in ("one", "two")]
    assert lanes.run([*both, python("raise SystemExit(1)")], 2) == 1
    assert sorted(capfd.readouterr().out.split()) == ["one", "two"]


def test_an_end_ends_what_runs(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        lanes.run([python("print(1)"), python("import time; time.sleep(200)")], 2)
    assert time.monotonic() - began < 100
