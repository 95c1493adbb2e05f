"""The table of behaviour names tests that exist; those on no real broker, or in the long run alone, are marked."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAMED = re.findall(
    r"`([a-z]+/test_[a-z_]+\.py)(?:::(test_\w+))?`(?: \(([^)]*)\))?", (TESTS / "CONSUMER_GROUP.md").read_text()
)
ON = {"unit": "values", "processing": "values", "decode": "values", "assignors": "values, against Java's"}
SCRIPTED = {"wire/test_cells.py", "wire/test_driver_reactions.py"}


def definition(file, test):
    """The line before a test's definition, and that line."""
    lines = (TESTS / file).read_text().splitlines()
    found = [n for n, line in enumerate(lines) if re.match(rf" *def {test}\(", line)]
    assert len(found) == 1, f"{file}::{test}"
    return lines[found[0] - 1].strip(), lines[found[0]]


def test_every_test_in_the_table_exists():
    assert len(NAMED) > 100
    for file, test, _ in NAMED:
        assert (TESTS / file).exists()
        assert not test or definition(file, test)


def test_what_has_no_real_broker_or_is_in_the_long_run_alone_is_marked():
    for file, test, mark in NAMED:
        where = "scripted" if file in SCRIPTED else ON.get(file.partition("/")[0])
        long = "soak" if test and definition(file, test)[0] == "@pytest.mark.soak" else None
        assert mark == ", ".join(filter(None, (where, long))), f"{file}::{test} ({mark})"
