"""Transactional ids that were taken 32,767 times: brokers give them another producer id then. A query that writes each
second comes to it in nine hours."""

import pytest
from support import name
from support.exactly_once_runs import Run, all_rows, killed, read, transaction_options

from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

ALMOST = 32_755
"""Brokers hand out epochs up to 32,766."""
BATCHES, RESTARTED, KILLED = 40, 9, 5
"""Batches, and every how many of them the application is another one, and a driver dies between decision and end."""


def take_until_almost(run, *ids):
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        for one in ids:
            while client.take_id(one, 60_000).epoch < ALMOST:
                pass


def test_each_row_is_there_once_while_epochs_run_out(kafka, tmp_path):
    output = kafka.create_topic(name("output"), partitions=2)
    run = Run(transaction_options(kafka.bootstrap_servers, name("w")), output)
    prefix = run.options.prefix
    run.batch(0)
    take_until_almost(run, prefix, f"{prefix}-0-0-0", f"{prefix}-1-0-1")
    drivers = set()
    for batch in range(1, BATCHES):
        if batch % RESTARTED == 1:
            run.shared = tmp_path / str(batch)
            run.shared.mkdir()
        if batch % KILLED == 0:
            assert killed(run.options, output, batch, "decided", {}) == -9
            run.shared = None
        drivers.add(run.batch(batch)[0].planned.driver.producer_id)
    assert len(drivers) == 2
    assert read(kafka, output) == all_rows(BATCHES)
