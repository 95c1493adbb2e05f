"""The same on a standalone cluster, on YARN, on local-cluster, and through Spark Connect."""

import os

import pytest
from support import committed, members, numbered, options, produce, topic_with

from spark_kafka_group.testing import wait_until

pytestmark = pytest.mark.timeout(600)  # which the start of the cluster is counted in
LONG = pytest.mark.soak
DEPLOYMENTS = [
    "on_standalone",
    *(pytest.param(one, marks=LONG) for one in ("on_yarn", "on_local_cluster", "on_connect")),
]


@pytest.fixture(params=DEPLOYMENTS)
def application(request):
    return request.getfixturevalue(request.param)


def values(rows):
    return sorted(int(value[1:]) for value in rows)


def test_tasks_take_the_package_from_the_wheel_on_two_executors(application, request):
    over_connect = "on_connect" in request.node.name
    installed = request.getfixturevalue("connect_installed" if over_connect else "installed")
    found = application.workers(tasks=4)
    assert len({worker["directory"] for worker in found}) == 2
    for worker in found:
        assert worker["package"] == str(installed.packages / "spark_kafka_group" / "__init__.py")
        assert worker["decoder"].startswith(str(installed.packages))
        assert worker["python"] == str(installed.python)
        assert not [path for path in worker["path"] if os.path.exists(os.path.join(worker["directory"], path, "tests"))]


@pytest.mark.soak
def test_a_query_writes_every_row_once_and_is_seen_in_its_group(application, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(3000, 6), partitions=6)
    query = application.start(
        options=options(kafka, topic, group, minPartitions=6, maxOffsetsPerTrigger=2000), directory=str(tmp_path)
    )
    wait_until(lambda: committed(kafka, group) == {(topic, p): 500 for p in range(6)}, within=120)
    assert [m["client_id"] for m in members(kafka, group)] == ["groupkafka-driver"]
    produce(kafka, topic, numbered(600, 6, first=3000))
    wait_until(lambda: committed(kafka, group) == {(topic, p): 600 for p in range(6)}, within=120)
    progress = application.progress(query=query)
    assert sum(batch["rows"] for batch in progress) == 3600
    assert progress[-1]["latest"]["@group"]["group"] == group
    application.stop(query=query)
    wait_until(lambda: members(kafka, group) == [], within=30)
    assert values(application.rows(directory=f"{tmp_path}/rows")) == list(range(3600))


@pytest.mark.soak
def test_available_now_goes_on_from_its_checkpoint(application, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(300, 3))
    for count in (300, 330):
        query = application.start(options=options(kafka, topic, group), directory=str(tmp_path), available_now=True)
        assert application.ends(query=query)
        assert values(application.rows(directory=f"{tmp_path}/rows")) == list(range(count))
        assert committed(kafka, group) == {(topic, p): count // 3 for p in range(3)}
        produce(kafka, topic, numbered(30, 3, first=count))


@pytest.mark.soak
def test_batch_reads_and_group_batch(application, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(300, 3))
    settings = options(kafka, topic, group, startingOffsets="group", minPartitions=4)
    result = application.group_batch(options=settings, output=f"{tmp_path}/rows")
    assert result["records"] == 300
    assert values(application.rows(directory=f"{tmp_path}/rows")) == list(range(300))
    assert committed(kafka, group) == {(topic, p): 100 for p in range(3)}
    assert members(kafka, group) == []
    produce(kafka, topic, numbered(30, 3, first=300))
    assert values(application.read(options=settings)) == list(range(300, 330))
    assert values(application.read(options=options(kafka, topic))) == list(range(330))


@pytest.mark.parametrize(
    "application",
    ["on_standalone", pytest.param("on_local_cluster", marks=LONG), pytest.param("on_connect", marks=LONG)],
    indirect=True,
)
@pytest.mark.soak
def test_two_queries_share_a_group(application, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(400, 4), partitions=4)
    settings = options(kafka, topic, group, startingOffsets="group") | {"kafka.auto.offset.reset": "earliest"}
    queries = {name: application.start(options=settings, directory=f"{tmp_path}/{name}") for name in "ab"}
    wait_until(lambda: committed(kafka, group) == {(topic, p): 100 for p in range(4)}, within=250)
    wait_until(lambda: kafka.group_state(group)[0] == "Stable" and len(members(kafka, group)) == 2, within=250)
    produce(kafka, topic, numbered(400, 4, first=400))
    wait_until(lambda: committed(kafka, group) == {(topic, p): 200 for p in range(4)}, within=250)
    for query in queries.values():
        application.stop(query=query)
    rows = {name: values(application.rows(directory=f"{tmp_path}/{name}/rows")) for name in queries}
    assert sorted(rows["a"] + rows["b"]) == list(range(800))
    # The later records were dealt to both.
    assert all(any(value >= 400 for value in found) for found in rows.values())
