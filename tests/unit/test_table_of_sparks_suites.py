"""The table of the cases of Spark's own suites names tests that exist, and says something of every case."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = (TESTS / "spark" / "SPARK_SUITES.md").read_text()


def test_every_test_in_the_table_exists():
    named = re.findall(r"`([a-z]+/test_[a-z_0-9]+\.py)(?:::(Test\w+))?(?:::(test_\w+))?`", TABLE)
    assert len(named) > 100
    for file, group, test in named:
        text = (TESTS / file).read_text()
        if group:
            assert f"class {group}:" in text, f"{file}::{group}"
            text = re.split(r"^class \w+:", text.split(f"class {group}:", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
        assert not test or re.search(rf"def {test}\(", text), f"{file}::{group}::{test}"


def test_every_case_has_a_test_or_a_reason():
    for row in re.findall(r"^\| (?!case|condition|-)(.*) \| (.*) \|$", TABLE, flags=re.MULTILINE):
        case, shown = row
        assert "::test_" in shown or re.match(r"cannot apply: \w|no test: \w|cannot apply, as above", shown), case


def test_nothing_is_named_in_a_way_that_is_not_checked():
    mentioned = set(re.findall(r"`[^`]*test_[^`]*`", TABLE))
    checked = {m for m in mentioned if re.fullmatch(r"`[a-z]+/test_[a-z_0-9]+\.py(::Test\w+)?(::test_\w+)?`", m)}
    assert mentioned == checked
