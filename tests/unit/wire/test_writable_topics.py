"""A task that waits for brokers says so once it has taken long, and says when it goes on."""

from spark_kafka_group.wire.writable_topics import LongWait


def test_each_long_wait_is_a_warning_at_its_beginning_and_one_at_its_end(caplog):
    now = 100.0
    wait = LongWait(clock=lambda: now)
    wait.lasts("orders-0", 9.9, lambda: "refused")
    wait.over()
    assert caplog.messages == []
    for round_ in (1, 2):
        wait.lasts("orders-0", 10.0, lambda: "refused\x1b[2J")
        wait.lasts("orders-1", 30.0, lambda: "silent")
        now += 5
        wait.over()
        wait.over()
        assert caplog.messages[2 * round_ - 2 :] == [
            "orders-0: brokers are away, or do not answer: refused\\x1b[2J. The task waits for them, and goes on",
            "brokers answer again, after 15 s",
        ]
