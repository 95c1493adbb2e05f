"""A micro-batch may take as long as it takes: the driver stays a member, and its commit works."""

import json

import pytest
from support import committed, members, numbered, options, topic_with


@pytest.mark.parametrize(
    ("setting", "milliseconds", "batch_seconds"),
    [
        pytest.param("kafka.session.timeout.ms", 2000, 6.5, id="three sessions", marks=pytest.mark.soak),
        pytest.param("kafka.max.poll.interval.ms", 2000, 4, id="two poll intervals"),
    ],
)
@pytest.mark.soak
def test_a_batch_longer_than_a_timeout_is_committed_by_the_member_that_planned_it(
    kafka, group, tmp_path, start_query, setting, milliseconds, batch_seconds
):
    topic = topic_with(kafka, numbered(90, 3))
    settings = options(kafka, topic, group, maxOffsetsPerTrigger=30) | {
        setting: str(milliseconds),
        "kafka.heartbeat.interval.ms": "500",
    }
    query = start_query(settings, "--batch-seconds", batch_seconds)
    query.wait_for(lambda: len(members(kafka, group)) == 1)
    member = members(kafka, group)[0]["member_id"]
    query.wait_for((tmp_path / "checkpoint" / "offsets" / "1").exists)
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}
    query.wait_for(lambda: committed(kafka, group) == {(topic, p): 20 for p in range(3)})
    assert [m["member_id"] for m in members(kafka, group)] == [member]
    generations = {json.loads(metadata)["generation"] for _, metadata in kafka.committed(group).values()}
    assert generations == {2}
    query.kill()
