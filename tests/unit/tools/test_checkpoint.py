"""What is read of Spark's checkpoints as files: by tools, and by the driver where it can see them."""

import json
import os

import pytest

from spark_kafka_group.tools import checkpoint
from spark_kafka_group.tools.arguments import ToolError
from spark_kafka_group.transactions.checkpoint_log import is_without, logged_batch, newest_has
from spark_kafka_group.values.exactly_once import BatchId
from spark_kafka_group.values.files import local_folder
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
IN_G = GroupOffset({A: 5, B: 7}, "reader-g", 3, batch=2, group_id="g")
IN_H = GroupOffset({A: 50}, "reader-h", 4, batch=2, group_id="h")
SPARKS = '{"orders":{"0":1000}}'
FORMS = {
    "one source": ("v1", "{}"),
    "two sources": ("v1", "{}", "{}"),
    "numbered, in any order": ("v2", "1:{}", "0:{}"),
    "named": ("v2", "payments:{}", "orders_2:{}"),
    "one of them without offsets": ("v1", "-", "{}"),
}


def logged(folder, version, *lines):
    """A checkpoint as Spark 4.3.0 writes it."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q"}')
    (folder / "offsets" / "8").write_text("v1\n{}\n" + SPARKS)
    (folder / "offsets" / "11").write_text("\n".join([version, '{"batchWatermarkMs":0,"conf":{}}', *lines]))
    (folder / "offsets" / ".11.crc").write_bytes(b"crc")
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_positions_are_those_of_each_source_in_both_versions_of_the_log(tmp_path, form):
    version, *lines = FORMS[form]
    offsets = iter((IN_G, IN_H))
    filled = [line.format(json.dumps(next(offsets).to_json())) if "{" in line else line for line in lines]
    found = checkpoint.positions([logged(tmp_path, version, *filled)])
    assert checkpoint.of_group(found, "g") == {A: 5, B: 7}
    assert checkpoint.of_group(found, "h") == ({A: 50} if len([line for line in filled if line != "-"]) > 1 else {})


def test_a_source_of_sparks_beside_it_is_not_read_and_alone_is_an_error(tmp_path):
    both = logged(tmp_path / "both", "v2", f"theirs:{SPARKS}", f"ours:{json.dumps(IN_G.to_json())}")
    assert checkpoint.of_group(checkpoint.positions([both]), "g") == {A: 5, B: 7}
    with pytest.raises(ToolError, match="does not read with groupkafka"):
        checkpoint.positions([logged(tmp_path / "alone", "v2", f"theirs:{SPARKS}")])


def test_a_checkpoint_from_before_groups_were_in_it_is_of_each_group(tmp_path):
    older = GroupOffset({A: 5}, "reader", 3)
    found = checkpoint.positions([logged(tmp_path, "v1", json.dumps(older.to_json()))])
    assert checkpoint.of_group(found, "any") == {A: 5}


@pytest.mark.parametrize("form", FORMS)
def test_the_driver_knows_sources_of_a_batch_in_both_versions_of_the_log(tmp_path, form):
    version, *lines = FORMS[form]
    text = json.dumps(IN_G.to_json())
    folder = str(logged(tmp_path, version, *(line.format(text) if "{" in line else line for line in lines)))
    batch = BatchId("q", 11)
    assert newest_has(folder, "reader-g")
    assert not newest_has(folder, "reader-h")
    assert not is_without(folder, batch, "reader-g", ["orders"])
    assert is_without(folder, batch, "reader-h", ["orders"])
    assert logged_batch(folder, batch)


@pytest.mark.parametrize(
    "named", ["{}/missing/../ck", "file:{}/missing/../ck", "file://{}/missing/../ck", "{}/link/../ck"]
)
def test_a_checkpoint_is_found_where_hadoop_finds_it(tmp_path, named):
    logged(tmp_path / "ck", "v1", json.dumps(IN_G.to_json()))
    (tmp_path / "elsewhere" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "below")
    assert newest_has(named.format(tmp_path), "reader-g")


@pytest.mark.parametrize(
    ("named", "is_at"),
    [
        ("ck/../other", "{cwd}/other"),
        ("../../other", "{two_up}/other"),
        ("/../other", "/other"),
        ("/a b/%20/./c//d/", "/a b/%20/c/d"),
        ("file:///a", "/a"),
        ("file:/a/../b", "/b"),
        ("file:////a", "/a"),
    ],
)
def test_a_name_is_taken_as_hadoops_path_takes_it(named, is_at):
    two_up = os.path.dirname(os.path.dirname(os.getcwd()))
    assert str(local_folder(named)) == is_at.format(cwd=os.getcwd(), two_up="" if two_up == "/" else two_up)
