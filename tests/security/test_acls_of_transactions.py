"""The least rights of an exactly-once write, as docs/exactly-once.md has them, by Kafka's own authorizer."""

import pytest
from exactly_once_runs import Run, all_rows, read
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from secured import add_user, options, scram
from support import name

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.options import Options
from spark_kafka_group.options.transacting import DECISION_TOPIC, Transacting, TransactionOptions
from spark_kafka_group.testing import wait_until

TOPIC, ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
CREATE, READ, WRITE = ACLOperation.CREATE, ACLOperation.READ, ACLOperation.WRITE


@pytest.fixture
def output(kafka):
    return kafka.create_topic(name("output"), partitions=2)


@pytest.fixture
def run_of(kafka, output):
    def make(*rights):
        user, prefix = name("user"), name("w")
        add_user(kafka, user)
        for operation, kind, resource in rights:
            of = ACLResourcePatternType.PREFIXED if kind is ID else ACLResourcePatternType.LITERAL
            pattern = ResourcePattern(kind, prefix if kind is ID else resource, of)
            kafka.admin.create_acls([ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern)])
        parsed = Options.parse(options(kafka, "SASL", "any", **scram(user)))
        return Run(TransactionOptions(parsed.client, Transacting(prefix), 15_000), output)

    return make


def test_a_write_needs_its_ids_its_topics_and_nothing_else(kafka, output, run_of):
    of_decisions = [(operation, TOPIC, DECISION_TOPIC) for operation in (CREATE, READ, WRITE)]
    run = run_of((WRITE, ID, None), (WRITE, TOPIC, output), *of_decisions)

    def planned():
        try:
            return run.plan()
        except BrokerError:  # brokers hear of new rights a little later
            return None

    run.commit(run.tasks(wait_until(planned, within=30), 0))
    run.tasks(run.plan(), 1)
    run.batch(1)
    assert read(kafka, output) == all_rows(2)


def why_refused(run):
    """The error of a plan; brokers hear of rights a little later, and refuse for want of others until then."""
    try:
        run.plan()
    except BrokerError as error:
        return str(error)
    return ""


def test_a_right_that_is_missing_is_named(kafka, output, run_of):
    run = run_of((WRITE, TOPIC, output), *((one, TOPIC, DECISION_TOPIC) for one in (CREATE, READ, WRITE)))
    advice = f"this user needs the ACL operation Write on TransactionalId {run.options.prefix}"
    wait_until(lambda: advice in why_refused(run), within=30)
    run = run_of((WRITE, ID, None), (WRITE, TOPIC, output))
    wait_until(lambda: f"creating topic {DECISION_TOPIC}: " in why_refused(run), within=30)
