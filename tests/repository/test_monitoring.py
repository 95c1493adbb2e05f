"""conf/prometheus/ and conf/grafana/ name metrics and labels that the package has, and are well formed."""

import re
from pathlib import Path

import monitoring
import pytest
import yaml
from test_docs import problem

from spark_kafka_group.metrics.group_metrics import GroupMetrics
from spark_kafka_group.metrics.metric_table import METRICS, PARTITION_METRICS
from spark_kafka_group.metrics.prometheus import Exporter
from spark_kafka_group.values.offsets import TopicPartition

ROOT = Path(__file__).parents[2]
OF_PROMETHEUS = {"alertname", "job", "instance"}
METRIC = re.compile(r"\b(?:kafka_consumer|groupkafka)_\w+")
EXPRESSIONS = [
    *(pytest.param(query.expression, id=panel.title) for panel in monitoring.panels() for query in panel.queries),
    *(pytest.param(alert.expression, id=alert.name) for alert in monitoring.alerts()),
    *(
        pytest.param(variable["query"]["query"], id=f"${variable['name']}")
        for variable in monitoring.dashboard()["templating"]["list"]
        if variable["type"] == "query"
    ),
]


def shown():
    """Labels and kind of each metric that Prometheus can scrape, by name."""
    of_partition = {metric.name: 1.0 for metric in PARTITION_METRICS}
    one = GroupMetrics(
        "orders", "billing", values={metric.name: 1.0 for metric in METRICS},
        partitions={TopicPartition("orders", 0): of_partition},
    )  # fmt: skip
    families = Exporter(lambda: [[one]], lambda: (0, 0), 0, "127.0.0.1", None).collect()
    return {
        sample.name: (set(sample.labels), family.type)
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


SHOWN = shown()


def lists_of_labels(expression):
    """Labels by which an expression groups or matches series."""
    return re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", expression)


def labels_left(expression):
    """Labels of an expression's result."""
    grouped = re.match(r"\w+ by \(([^)]*)\)", expression)
    if grouped:
        return set(grouped[1].split(", "))
    return set.intersection(*(SHOWN[name][0] for name in METRIC.findall(expression))) | OF_PROMETHEUS


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_and_label_of_an_expression_exists(expression):
    names = METRIC.findall(expression)
    assert set(names) <= SHOWN.keys()
    assert names
    for name, selector in re.findall(r"(\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)[=!]", selector)) <= SHOWN[name][0]
    for name in names:
        assert {label.strip() for text in lists_of_labels(expression) for label in text.split(",")} <= SHOWN[name][0]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_rates_are_of_counters_and_slopes_of_gauges(expression):
    for function, name in re.findall(r"(\w+)\((\w+)(?:\{[^}]*\})?\[", expression):
        assert SHOWN[name][1] == {"rate": "counter", "increase": "counter", "deriv": "gauge"}[function]


@pytest.mark.parametrize("panel", monitoring.panels(), ids=lambda panel: panel.title)
def test_a_legend_names_labels_that_its_expression_keeps(panel):
    for query in panel.queries:
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= labels_left(query.expression)


@pytest.mark.parametrize("alert", monitoring.alerts(), ids=lambda alert: alert.name)
class TestAlerts:
    def test_the_texts_of_an_alert_name_labels_that_its_expression_keeps(self, alert):
        texts = f"{alert.summary} {alert.description}"
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels_left(alert.expression)

    def test_the_texts_of_an_alert_are_sentences_and_its_page_exists(self, alert):
        assert len(alert.summary) < 110
        assert alert.description.endswith(".")
        assert alert.severity in {"info", "warning", "critical"}
        assert problem(ROOT / "README.md", alert.runbook) is None

    def test_the_file_for_promtool_has_a_series_that_fires_each_alert(self, alert):
        cases = yaml.safe_load(monitoring.TESTED_RULES.read_text())["tests"]
        firing = " ".join(s["labels"] for case in cases for t in case["promql_expr_test"] for s in t["exp_samples"])
        assert f'"{alert.name}"' in firing

    def test_the_page_of_metrics_has_each_alert(self, alert):
        assert f"| `{alert.name}` | {alert.severity} |" in (ROOT / "docs/metrics.md").read_text()


class TestDashboard:
    def test_the_dashboard_needs_no_plugin_and_takes_any_prometheus(self):
        dashboard = monitoring.dashboard()
        assert {panel["type"] for panel in dashboard["panels"]} == {"row", "stat", "timeseries"}
        variables = {each["name"]: each for each in dashboard["templating"]["list"]}
        assert variables["datasource"]["type"] == "datasource"
        assert set(re.findall(r"\$\{?(\w+)", monitoring.DASHBOARD.read_text())) <= {
            *variables,
            "__rate_interval",
            "__all",
        }
        sources = [panel["datasource"] for panel in dashboard["panels"] if panel["type"] != "row"]
        sources += [target["datasource"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)

    def test_the_dashboards_panels_have_ids_and_places_of_their_own(self):
        panels = monitoring.dashboard()["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        places = [
            (x, y)
            for place in (panel["gridPos"] for panel in panels)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(set(places)) == len(places)
        assert max(x for x, _ in places) < 24

    def test_every_panel_says_what_it_shows(self):
        for panel in monitoring.panels():
            assert panel.description.endswith(".")
            assert panel.queries
