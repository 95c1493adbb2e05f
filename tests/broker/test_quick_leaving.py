"""A query that ends while the broker that coordinates its group does."""

import time

import pytest
from support import numbered, options, topic_with

from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.wire.admin import GroupAdmin


@pytest.mark.parametrize("how", ["stop", pytest.param("kill", marks=pytest.mark.soak)])
def test_a_query_that_ends_as_its_coordinator_does_is_out_of_the_group_soon(kafka3, group, driver_of, how):
    topic = topic_with(kafka3, numbered(3, 3))
    driver = driver_of(kafka3, topic, group)
    end = driver.latest_offset(driver.initial_offset(), None)
    driver.latest_offset(end, None)
    with GroupAdmin(Options.parse(options(kafka3, topic))) as admin:
        node = kafka3.node(admin.coordinator(group).id - 1)
    try:
        getattr(node, how)()
        began = time.monotonic()
        driver.stop()
        assert time.monotonic() - began < 20
        wait_until(lambda: kafka3.group_state(group) == ("Empty", []), within=30)  # a session is of 45 s
    finally:
        node.start()
        kafka3.wait_until_ready()
