"""SECURITY.md names files, make targets and options that exist."""

import re
from pathlib import Path

import pytest

from spark_kafka_group.options import OPTION_NAMES

ROOT = Path(__file__).parents[2]
CODE = re.findall(r"`([^`]+)`", (ROOT / "SECURITY.md").read_text())
OF_NO_OPTION = {
    "repr",
    "prometheus_port",
    "spark_kafka_group.testing",
    "RecordProcessor",
    "PLAINTEXT",
    "SECONDS",
    "__consumer_offsets",
}
"""Words of Python and Kafka."""
FILES = {word for word in CODE if "/" in word or word.endswith(".md")}
TARGETS = {word for word in CODE if word.startswith("make ")}


@pytest.mark.parametrize("file", sorted(FILES))
def test_every_file_that_is_named_exists(file):
    assert (ROOT / file).exists()


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_target_that_is_named_exists(target):
    assert re.search(rf"^{target.removeprefix('make ')}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_everything_that_is_fuzzed_is_said_to_be():
    targets = re.findall(r'^    "([a-z-]+)": Target\(', (ROOT / "tests/fuzz/targets.py").read_text(), re.MULTILINE)
    said = {
        *("decoder", "frames", "large"), *("avro", "avro-schema", "ddl", "json", "proto-text", "protobuf", "written"),
        "commit-metadata", "encoder",
        "error-headers", "events", "fetch-response", "jaas", "offsets", "offsets-topic", "options", "produce-response",
        "properties", "subscription",
    }  # fmt: skip
    assert set(targets) == said, "say in SECURITY.md what is fuzzed"


def test_code_that_is_neither_a_file_nor_a_target_is_an_option():
    assert {word for word in set(CODE) - FILES - TARGETS - OF_NO_OPTION if word.lower() not in OPTION_NAMES} == set()


def test_nothing_is_unpickled_or_run_but_what_sparks_own_planner_hands_back():
    runs = re.compile(r"pickle\.loads?\(|\bUnpickler\b|\b(?<!\.)(?:eval|exec)\(|\bmarshal\b|\bshelve\b")
    files = [file for file in (ROOT / "spark_kafka_group").rglob("*.py*") if file.suffix in (".py", ".pyx")]
    assert {file.name for file in files if runs.search(file.read_text())} == {"read_where.py"}


def test_something_of_each_kind_is_named():
    assert len(FILES) > 4
    assert TARGETS
    assert len(set(CODE) - FILES - TARGETS - OF_NO_OPTION) > 10
