"""The alerts of conf/prometheus/ and the panels of conf/grafana/, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CONF = Path(__file__).parents[1] / "conf"
RULES = CONF / "prometheus/groupkafka.rules.yml"
TESTED_RULES = CONF / "prometheus/groupkafka.rules.test.yml"
DASHBOARD = CONF / "grafana/groupkafka.json"


@dataclass(frozen=True)
class Query:
    """An expression of PromQL, and how a legend names its series: ``{{topic}}-{{partition}}``."""

    expression: str
    legend: str

    def over(self, interval: str) -> str:
        """The expression as Grafana sends it, all groups, queries and topics chosen; rates are of `interval`."""
        return evaluable(self.expression, interval)

    def name(self, labels: dict[str, str]) -> str:
        """A series in the legend."""
        text = self.legend
        for label, value in labels.items():
            text = text.replace(f"{{{{{label}}}}}", value)
        return text


@dataclass(frozen=True)
class Panel:
    """One panel of the dashboard; `kind`, `unit` and `style` are Grafana's words."""

    title: str
    description: str
    kind: str
    unit: str
    style: str
    decimals: int | None
    queries: tuple[Query, ...]


@dataclass(frozen=True)
class Alert:
    """One alert; the texts have ``{{ $labels.query }}`` in them."""

    name: str
    expression: str
    severity: str
    summary: str
    description: str
    runbook: str


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana reads it."""
    read: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return read


def panels() -> list[Panel]:
    """The panels with numbers, in the dashboard's order."""
    return [
        Panel(
            each["title"],
            each["description"],
            each["type"],
            each["fieldConfig"]["defaults"]["unit"],
            each["fieldConfig"]["defaults"].get("custom", {}).get("drawStyle", ""),
            each["fieldConfig"]["defaults"].get("decimals"),
            tuple(Query(target["expr"], target["legendFormat"]) for target in each["targets"]),
        )
        for each in dashboard()["panels"]
        if each["type"] != "row"
    ]


def alerts() -> list[Alert]:
    """The alerts, in the file's order."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return [
        Alert(
            rule["alert"],
            rule["expr"],
            rule["labels"]["severity"],
            *(rule["annotations"][name] for name in ("summary", "description", "runbook")),
        )
        for rule in group["rules"]
    ]


def evaluable(expression: str, interval: str) -> str:
    """An expression of the dashboard with its variables filled in: everything is chosen."""
    for variable in ("group", "query", "topic"):
        expression = expression.replace(f"${variable}", ".*")
    return expression.replace("$__rate_interval", interval)
