"""--handler of jobs/process.py: what cannot be found is said in one sentence."""

import importlib.util
from pathlib import Path

import pytest

JOB = Path(__file__).parents[2] / "jobs" / "process.py"


@pytest.fixture(scope="module")
def named():
    spec = importlib.util.spec_from_file_location("job_process", JOB)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.named


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("json", "json is not MODULE:NAME: write it as shop:charge"),
        ("json.dumps", "json.dumps is not MODULE:NAME"),
        (":dumps", ":dumps is not MODULE:NAME"),
        (".json:dumps", ".json:dumps is not MODULE:NAME"),
        (
            "jsonn:dumps",
            "jsonn:dumps: No module named 'jsonn': start this program in the folder of the module, or send",
        ),
        ("json:dumpss", "json:dumpss: module json has no dumpss: correct the name"),
    ],
)
def test_a_handler_that_is_not_found_is_said_in_one_sentence(named, text, problem):
    with pytest.raises(SystemExit) as raised:
        named(text)
    assert str(raised.value).startswith(problem)


def test_a_handler_is_found(named):
    import json

    assert named("json:dumps") is json.dumps
