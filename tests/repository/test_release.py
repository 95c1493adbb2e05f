"""Forms and workflows of .github, and what a new version must go on reading."""

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import check_jsonschema
import pytest
from click.testing import CliRunner

import spark_kafka_group
from spark_kafka_group.errors import OffsetFormatError
from spark_kafka_group.values.commit_metadata import LeftBy, Since, Writer, writer_of
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SCHEMAS = {
    "workflows": "vendor.github-workflows",
    "ISSUE_TEMPLATE": "vendor.github-issue-forms",
    "config.yml": "vendor.github-issue-config",
}
FILES = sorted(str(file.relative_to(ROOT)) for file in (ROOT / ".github").rglob("*.yml"))


@pytest.mark.parametrize("file", FILES)
def test_github_understands_forms_and_workflows(file):
    path = ROOT / file
    schema = SCHEMAS.get(path.name, SCHEMAS[path.parent.name])
    checked = CliRunner().invoke(check_jsonschema.main, ["--builtin-schema", schema, str(path)])
    assert checked.exit_code == 0, checked.output


def test_there_is_a_workflow_and_there_are_forms():
    assert {Path(file).name for file in FILES} >= {"release.yml", "bug.yml", "feature.yml", "question.yml"}


def test_there_is_a_wheel_for_each_python_that_the_classifiers_name():
    pythons = re.findall(r"Python :: 3\.(\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp3{minor}-*" for minor in pythons]


def test_the_version_is_named_once_in_two_places():
    assert PROJECT["project"]["version"] == spark_kafka_group.__version__


# Written by version 0.1.0, with every key that it has. They stay as they are: a later version that does not read them
# cannot take over its queries.
CHECKPOINT = """{"orders": {"0": 5, "1": 7}, "@group": {"reader": "0af3", "generation": 4, "batch": 2,
 "topics": {"orders": "AAAAAAAAAAAAAAAAAAAAAQ"}, "from": {"orders": {"1": 6}}, "epochs": {"orders": {"0": 1}},
 "left": {"orders": {"2": 9}}, "transaction": true, "id": "billing",
 "overrides": {"orders": {"2": 4}}, "unseen": true}}"""
NOTES = {
    '{"reader":"0af3","generation":4,"batch":2,"without":1}': Writer("0af3", 4, 2, without=1),
    '{"reader":"0af3","generation":4,"batch":2,"adopted":2,"left_by":{"reader":"99b1","without":6}}': Writer(
        "0af3", 4, 2, adopted=2, left_by=LeftBy("99b1", 6)
    ),
    '{"reader":"0af3","generation":4,"batch":2,"adopted":2,"left_by":{"reader":"99b1","without":6,"generation":3}}': (
        Writer("0af3", 4, 2, adopted=2, left_by=LeftBy("99b1", 6, 3))
    ),
    '{"reader":"0af3","generation":4,"batch":2,"adopted":2,"adopted_in":3}': Writer(
        "0af3", 4, 2, adopted=2, adopted_in=3
    ),
    '{"reader":"0af3","generation":4,"batch":2,"adopted":2,"since":{"99b1":[7],"5f0c":[3,1]}}': Writer(
        "0af3", 4, 2, adopted=2, since={"99b1": Since(7), "5f0c": Since(3, 1)}
    ),
}


def test_the_checkpoint_of_each_version_is_read():
    read = GroupOffset.from_json(json.loads(CHECKPOINT))
    zero, one, two = (TopicPartition("orders", partition) for partition in range(3))
    before = {"moved": {one: 6}, "epochs": {zero: 1}, "left": {two: 9}, "unseen": True}
    ids, of_the_sink = {"orders": "AAAAAAAAAAAAAAAAAAAAAQ"}, {"in_transaction": True, "group_id": "billing"}
    expected = GroupOffset({zero: 5, one: 7}, "0af3", 4, 2, ids, **before, **of_the_sink, overrides={two: 4})
    assert read == expected
    assert read.to_json() == json.loads(CHECKPOINT)


@pytest.mark.parametrize(("note", "meant"), NOTES.items())
def test_the_metadata_of_each_version_s_commits_is_read(note, meant):
    assert writer_of(note) == meant


def test_every_key_that_this_version_writes_is_kept_here():
    assert {key for note in NOTES for key in json.loads(note)} == Writer("0af3", 4).to_json().keys()
    renamed = {
        "query_id": "reader",
        "topic_ids": "topics",
        "moved": "from",
        "in_transaction": "transaction",
        "group_id": "id",
    }
    written = {renamed.get(field.name, field.name) for field in fields(GroupOffset)} - {"positions"}
    assert json.loads(CHECKPOINT)["@group"].keys() == written


def test_a_note_with_keys_of_a_later_version_is_read_without_them():
    assert writer_of('{"reader":"0af3","generation":4,"batch":2,"later":{"x":1}}') == Writer("0af3", 4, 2)


def test_a_checkpoint_with_keys_of_a_later_version_is_refused():
    later = json.loads(CHECKPOINT)
    later["@group"]["later"] = 1
    with pytest.raises(OffsetFormatError, match="install the version that wrote it"):
        GroupOffset.from_json(later)
