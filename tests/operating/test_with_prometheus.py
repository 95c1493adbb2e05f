"""The alerts and the dashboard in a real Prometheus, which scrapes queries that run on a real broker."""

import subprocess
import time

import monitoring
import prometheus_server
import pytest
from monitored_queries import BILLING, CLICKS, ORDERS, SHOP, TOPICS, MonitoredQueries

from spark_kafka_group import GroupKafkaListener
from spark_kafka_group.testing import KafkaCluster, wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]  # Prometheus is downloaded first

PREFIX = "kafka_consumer_"
INTERVAL = "10s"


def promtool(*arguments):
    tool = prometheus_server.command("promtool", "prometheus")
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)


def test_the_alerts_are_right_by_promtool_and_each_fires_when_it_should():
    for arguments in (("check", "rules", monitoring.RULES), ("test", "rules", monitoring.TESTED_RULES)):
        done = promtool(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout


@pytest.fixture(scope="module")
def listener(spark):
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", 500)
    with GroupKafkaListener(spark, prometheus_port=0) as listener:
        yield listener
    spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


@pytest.fixture(scope="module")
def prometheus(listener):
    with prometheus_server.PrometheusServer([listener.prometheus_port], monitoring.RULES) as server:
        yield server


@pytest.fixture(scope="module")
def run(spark, prometheus, tmp_path_factory):
    """Two groups, a member that comes and goes, lost records, an outage; the run's first and last second."""
    began = time.time()
    with KafkaCluster() as kafka, MonitoredQueries(spark, kafka, tmp_path_factory.mktemp("queries")) as queries:

        def seen(expression, within=120):
            wait_until(lambda: prometheus.value(expression), within=within)

        seen(f"{PREFIX}records_dead_total > 0")
        seen(f'rate({PREFIX}records_consumed_total{{query="orders"}}[5s]) > 0')
        second = queries.second_member()
        seen(f"count({PREFIX}assigned_partitions) == 3")
        seen(f'{PREFIX}rebalance_total{{query="orders"}} > 0')
        second.stop()
        queries.running.remove(second)
        queries.lose_records()
        seen(f"{PREFIX}data_losses_total > 0")
        with queries.broker_away():
            seen(f'{PREFIX}brokers_away_seconds{{query="orders"}} > 1')
        seen(f'{PREFIX}brokers_away_seconds{{query="orders"}} == bool 0')
        yield began, time.time()


@pytest.fixture(scope="module")
def prometheus_of_the_run(prometheus, run):
    return prometheus


def of_the_dashboard():
    return [
        pytest.param(query.over(INTERVAL), panel.kind, id=f"{panel.title}: {query.legend}")
        for panel in monitoring.panels()
        for query in panel.queries
    ]


@pytest.mark.parametrize(("expression", "kind"), of_the_dashboard())
def test_every_panel_has_data(prometheus_of_the_run, run, expression, kind):
    if kind == "stat":
        assert len(prometheus_of_the_run.now(expression)) == 1
    else:
        assert any(each["values"] for each in prometheus_of_the_run.between(expression, *run, "1s"))


@pytest.mark.parametrize("alert", monitoring.alerts(), ids=lambda alert: alert.name)
def test_every_alert_is_evaluated_without_an_error(prometheus_of_the_run, alert):
    rules = {rule["name"]: rule for rule in prometheus_of_the_run.rules()}
    assert rules[alert.name]["health"] == "ok"
    assert not rules[alert.name].get("lastError")
    prometheus_of_the_run.now(alert.expression)


def test_alerts_fire_for_the_data_that_was_lost_and_for_the_dead_letters(prometheus_of_the_run):
    def firing():
        return {
            (alert["labels"]["alertname"], alert["labels"].get("query"))
            for rule in prometheus_of_the_run.rules()
            for alert in rule["alerts"]
            if alert["state"] == "firing"
        }

    expected = {("GroupKafkaDataLost", "orders"), ("GroupKafkaDeadLetters", "clicks")}
    wait_until(lambda: expected <= firing(), within=60)
    # A rebalance or two are no storm, and five seconds without a broker are no outage.
    assert firing() == expected


def test_the_dashboards_variables_have_the_names_of_groups_queries_and_topics(prometheus_of_the_run):
    values = {}
    for variable in monitoring.dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            series, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
            series = monitoring.evaluable(series, INTERVAL)
            values[variable["name"]] = set(prometheus_of_the_run.label_values(label, series))
    assert values == {"group": {BILLING, SHOP}, "query": {"orders", "orders-2", "clicks"}, "topic": set(TOPICS)}
    assert {ORDERS, CLICKS} == set(TOPICS)
