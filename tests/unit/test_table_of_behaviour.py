"""The table of behaviour names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_test_in_the_table_exists():
    named = re.findall(r"`([a-z]+/test_[a-z_]+\.py)(?:::(test_\w+))?`", (TESTS / "CONSUMER_GROUP.md").read_text())
    assert len(named) > 60
    for file, test in named:
        text = (TESTS / file).read_text()
        assert test is None or not test or re.search(rf"def {test}\(", text), f"{file}::{test}"
