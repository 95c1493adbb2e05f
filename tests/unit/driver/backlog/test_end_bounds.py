"""minOffsetsPerTrigger and maxTriggerDelay."""

from spark_kafka_group.driver.backlog.end_bounds import MinOffsets


def test_a_small_batch_waits_for_more_or_for_the_delay_but_the_first_does_not():
    now = [100.0]
    holding = MinOffsets(max_delay_ms=5_000, clock=lambda: now[0])
    assert holding.worth(1, least=15)
    holding.planned()
    assert not holding.worth(14, least=15)
    assert holding.worth(15, least=15)
    now[0] += 4.9
    assert not holding.worth(14, least=15)
    now[0] += 0.1
    assert holding.worth(1, least=15)
    holding.planned()
    assert not holding.worth(1, least=15)


def test_nothing_is_never_worth_a_batch_and_without_a_minimum_everything_is():
    holding = MinOffsets(max_delay_ms=0)
    assert not holding.worth(0, least=15)
    assert not holding.worth(0, least=None)
    holding.planned()
    assert holding.worth(1, least=None)
