"""``transactions`` lists, commits and aborts what a prefix has open, and says before what it does."""

import json

import pytest
from support import name
from support.exactly_once_runs import Run, all_rows, killed, read, rows_of, transaction_options, unstable

from spark_kafka_group.__main__ import main
from spark_kafka_group.errors import TransactionLostError
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient


@pytest.fixture
def output(kafka):
    return kafka.create_topic(name("output"), partitions=2)


@pytest.fixture
def run(kafka, output):
    return Run(transaction_options(kafka.bootstrap_servers, name("w")), output)


@pytest.fixture
def tool(kafka, run, capsys):
    def call(*arguments):
        servers = ["--bootstrap-server", kafka.bootstrap_servers, "--transactional-id", run.options.prefix]
        assert main(["transactions", *servers, *arguments]) == 0
        return capsys.readouterr().out

    return call


def abort_one_of(run):
    """As brokers do when the time of a transaction is over."""
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        client.take_id(f"{run.options.prefix}-1-0-0", 60_000)


def break_a_batch(run, output):
    killed(run.options, output, 0, "half ended", {})
    abort_one_of(run)


def test_nothing_is_listed_of_a_prefix_that_was_never_used(run, tool):
    shown = tool()
    assert f"no transaction of {run.options.prefix} is open" in shown
    assert f"No batch of {run.options.prefix} was decided yet, or that is not a kafka.transactional.id" in shown
    assert tool("abort", "--execute").endswith("\n  nothing: no transaction is open\n")


def test_execute_without_commit_or_abort_is_refused(kafka, run, capsys):
    servers = ["--bootstrap-server", kafka.bootstrap_servers, "--transactional-id", run.options.prefix]
    assert main(["transactions", *servers, "--execute"]) == 2
    assert "--execute needs commit or abort: say which" in capsys.readouterr().err


def test_open_transactions_are_listed_and_aborted_if_no_batch_was_decided(kafka, output, run, tool):
    run.tasks(run.plan(), 0)
    lines = [line.split() for line in tool("list").splitlines() if line.startswith(run.options.prefix)]
    assert [(line[0], line[1], line[7], line[8]) for line in lines] == [
        (f"{run.options.prefix}-{slot}-0-0", "Ongoing", f"{output}:0,1", "-") for slot in (0, 1)
    ]
    assert "abort 2 open transactions of no decision" in tool("commit")
    assert unstable(kafka, output) == [0, 1]
    assert tool("commit", "--execute").endswith("\nDone.\n")
    assert (unstable(kafka, output), read(kafka, output)) == ([], [])
    run.batch(0)
    assert read(kafka, output) == all_rows(1)


@pytest.mark.parametrize("action", ["commit", "abort"])
def test_a_decided_batch_is_committed_by_either_action(kafka, output, run, tool, action):
    killed(run.options, output, 0, "decided", {})
    lines = [json.loads(line) for line in tool("--json").splitlines()]
    assert [line["kind"] for line in lines] == ["transaction", "transaction", "decision"]
    assert all(line["decided"] for line in lines[:2])
    assert "commit 2 open transactions of batch 0 of query q" in tool(action, "--execute")
    assert read(kafka, output) == all_rows(1)
    assert "Batch 0 of query q is published: all of its transactions are committed." in tool()
    assert run.tasks(run.plan(), 0)[0].transaction is None


def test_commit_has_a_batch_that_was_published_in_part_count_as_published(kafka, output, run, tool):
    break_a_batch(run, output)
    with pytest.raises(TransactionLostError):
        run.plan()
    assert "of its transactions 1 aborted, 1 committed" in tool()
    assert f"1 transaction to {output}-0, {output}-1 is lost" in tool("commit", "--execute")
    run.batch(0)
    run.batch(1)
    assert read(kafka, output) == sorted(set(all_rows(2)) - set(rows_of(0, 1, 3)))


def test_abort_has_a_batch_that_was_published_in_part_be_written_again(kafka, output, run, tool):
    break_a_batch(run, output)
    assert f"published to {output}-0, {output}-1 are there twice" in tool("abort", "--execute")
    run.batch(0)
    assert read(kafka, output) == sorted(all_rows(1) + rows_of(0, 0, 3))


def test_a_query_that_runs_is_fenced_by_the_tool(kafka, output, run, tool):
    run.batch(0)
    messages = run.tasks(run.plan(), 1)
    tool("abort", "--execute")
    with pytest.raises(Exception, match="another process"):
        run.commit(messages)
    assert read(kafka, output) == all_rows(1)
