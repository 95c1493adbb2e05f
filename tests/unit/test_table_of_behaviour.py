"""The table of behaviour names tests that exist; those on no real broker, or in the long run alone, are marked."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = (TESTS / "CONSUMER_GROUP.md").read_text()
NAMED = re.findall(r"`([a-z]+/test_[a-z_]+\.py)(?:::(Test\w+))?(?:::(test_\w+))?`(?: \(([^)]*)\))?", TABLE)
ON = {"unit": "values", "processing": "values", "decode": "values", "assignors": "values, against Java's"}
SCRIPTED = {"wire/test_cells.py", "wire/test_driver_reactions.py"}


def before(file, group, test):
    """The line before a test's definition."""
    text = (TESTS / file).read_text()
    if group:
        assert f"class {group}:" in text, f"{file}::{group}"
        text = text.partition(f"class {group}:")[2]
    found = re.search(rf"^(.*)\n *def {test}\(", text, re.MULTILINE)
    assert found, f"{file}::{group}::{test}"
    return found[1].strip()


def test_every_test_in_the_table_exists():
    assert len(NAMED) == TABLE.count(".py") > 100
    for file, group, test, _ in NAMED:
        assert (TESTS / file).exists()
        assert not test or before(file, group, test) is not None


def test_what_has_no_real_broker_or_is_in_the_long_run_alone_is_marked():
    wrong = []
    for file, group, test, mark in NAMED:
        where = "scripted" if file in SCRIPTED else ON.get(file.partition("/")[0])
        long = "soak" if test and before(file, group, test) == "@pytest.mark.soak" else None
        expected = ", ".join(filter(None, (where, long)))
        if mark != expected:
            wrong.append(f"{file}::{test} ({mark}): ({expected})")
    assert wrong == []
