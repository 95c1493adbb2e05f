"""Where tests are: tables name tests that exist, and unit tests lie where their modules lie."""

import re
from pathlib import Path

import pytest
from support.source_tree import PACKAGE

TESTS = Path(__file__).parents[1]
TEST = r"`([a-z_/]+/test_[a-z_0-9]+\.py)(?:::(Test\w+))?(?:::(test_\w+))?`"
BEHAVIOUR = (TESTS / "CONSUMER_GROUP.md").read_text()
SPARKS_SUITES = (TESTS / "spark" / "SPARK_SUITES.md").read_text()
MARKED = re.findall(rf"{TEST}(?: \(([^)]*)\))?", BEHAVIOUR)
ON = {"unit": "values", "decode": "values", "assignors": "values, against Java's"}
SCRIPTED = {"wire/test_cells.py", "wire/test_driver_reactions.py"}


def before(file, group, test):
    """The line before a test's definition."""
    text = (TESTS / file).read_text()
    if group:
        assert f"class {group}:" in text, f"{file}::{group}"
        text = re.split(r"^class \w+:", text.split(f"class {group}:", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    found = re.search(rf"^(.*)\n *def {test}\(", text, re.MULTILINE)
    assert found, f"{file}::{group}::{test}"
    return found[1].strip()


@pytest.mark.parametrize("table", [BEHAVIOUR, SPARKS_SUITES], ids=["behaviour", "Spark's suites"])
def test_every_test_in_a_table_exists(table):
    named = re.findall(TEST, table)
    assert len(named) == table.count(".py") > 100
    for file, group, test in named:
        assert (TESTS / file).exists()
        assert not test or before(file, group, test) is not None


def test_what_has_no_real_broker_or_is_in_the_long_run_alone_is_marked():
    wrong = []
    for file, group, test, mark in MARKED:
        where = "scripted" if file in SCRIPTED else ON.get(file.partition("/")[0])
        long = "soak" if test and before(file, group, test) == "@pytest.mark.soak" else None
        expected = ", ".join(filter(None, (where, long)))
        if mark != expected:
            wrong.append(f"{file}::{test} ({mark}): ({expected})")
    assert wrong == []


def test_every_case_of_sparks_suites_has_a_test_or_a_reason():
    for row in re.findall(r"^\| (?!case|condition|-)(.*) \| (.*) \|$", SPARKS_SUITES, flags=re.MULTILINE):
        case, shown = row
        assert "::test_" in shown or re.match(r"cannot apply: \w|no test: \w|cannot apply, as above", shown), case


def test_no_test_is_named_in_a_way_that_is_not_checked():
    mentioned = set(re.findall(r"`[^`]*test_[^`]*`", SPARKS_SUITES))
    assert [mention for mention in mentioned if not re.fullmatch(TEST, mention)] == []


def test_unit_tests_lie_where_their_module_or_their_room_lies():
    """In the folder itself are tests of several rooms."""
    for file in (TESTS / "unit").glob("*/**/test_*.py"):
        room, name = PACKAGE / file.parent.relative_to(TESTS / "unit"), file.stem.removeprefix("test_")
        assert room.is_dir(), f"{file}: the package has no such room"
        assert name == room.name or (room / f"{name}.py").exists(), f"{file}: the room has no such module"
