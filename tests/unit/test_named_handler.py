"""--handler of jobs/process.py: what cannot be found is said in one sentence."""

import importlib.util
import sys

import pytest
from support.source_tree import ROOT

JOB = ROOT / "jobs" / "process.py"


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


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("import shop_lacks_this", "No module named 'shop_lacks_this'"),
        ("from json import dumpss", "cannot import name 'dumpss' from 'json'"),
    ],
)
def test_a_module_that_is_found_and_lacks_another_one_is_not_said_to_be_missing(
    named, tmp_path, monkeypatch, line, problem
):
    (tmp_path / "shop_of_a_test.py").write_text(line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    with pytest.raises(SystemExit) as raised:
        named("shop_of_a_test:charge")
    assert str(raised.value).startswith(f"shop_of_a_test:charge: module shop_of_a_test cannot be imported: {problem}")
    assert "folder of the module" not in str(raised.value)


def test_a_handler_is_found(named):
    import json

    assert named("json:dumps") is json.dumps
