"""The alert rules and the dashboard of config/monitoring, before a real Prometheus that scrapes a real broker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafkalite.testing import Broker
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.wait import until

FOLDER = ROOT / "config" / "monitoring"
ALERTS = FOLDER / "prometheus-alerts.yml"
DASHBOARD = FOLDER / "grafana-dashboard.json"
METRIC = re.compile(r"\b(?:kafka|kafkalite|process)_[a-z0-9_]+")
VARIABLES = {"$job": ".+", "$instance": ".+", "$__rate_interval": "1m"}
"""As Grafana fills them in."""


def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run([_program("promtool"), "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_alerts_come_when_they_should(tmp_path: Path) -> None:
    """Each alert fires on a series that is wrong for ten minutes, and none of them on one that is right."""
    for right in (True, False):
        tests = tmp_path / f"tests-{right}.yml"
        tests.write_text(yaml.safe_dump(_rule_tests(right)))
        command = [_program("promtool"), "test", "rules", tests]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_knows_every_expression(prometheus: str) -> None:
    until(lambda: _query(prometheus, 'up{job="kafkalite"} == 1'), "a scrape")
    for expression in (*_alert_expressions(), *_panel_expressions()):
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        _query(prometheus, expression)
    assert _query(prometheus, "sum(kafkalite_log_live_records)")[0]["value"][1] == "0"


def test_every_metric_is_one_of_the_broker(prometheus: str) -> None:
    """Scraped, or named in the source: a broker that never was the controller of a cluster does not serve them all."""
    source = (ROOT / "kafkalite" / "server" / "broker_metrics.py").read_text()
    until(lambda: _query(prometheus, "kafkalite_log_live_records"), "a scrape")
    scraped = {sample["metric"]["__name__"] for sample in _query(prometheus, '{job="kafkalite"}')}
    for expression in (*_alert_expressions(), *_panel_expressions()):
        for name in METRIC.findall(expression):
            assert name in scraped or f'"{name}"' in source, name


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The address of one that has the rules and scrapes a broker of one topic every second."""
    program, own, scraped = _program("prometheus"), free_port(), free_port()
    scrape = {"job_name": "kafkalite", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}
    settings = {"global": {"scrape_interval": "1s"}, "rule_files": [str(ALERTS)], "scrape_configs": [scrape]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
    command = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    log = (tmp_path / "prometheus.log").open("w")
    with log, Broker(metrics_listener=f"127.0.0.1:{scraped}") as broker:
        broker.create_topic("orders")
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{own}"], stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{own}"
        finally:
            process.terminate()
            process.wait(60)


def _rule_tests(right: bool) -> dict[str, Any]:
    """For each rule a series that is as it should be, or is not, and whether its alert fires after nine minutes."""
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    tests = []
    for rule in group["rules"]:
        [name] = re.findall(r"\b(?:up|(?:kafka|kafkalite)_[a-z0-9_]+)\b", rule["expr"])
        should_be_one = name == "up" or "activecontroller" in name
        values = "1x30" if right == should_be_one else "0x30"
        if "increase" in rule["expr"] and not right:
            values = "0+1x30"
        series = [{"series": f'{name}{{job="kafkalite", instance="broker:9404"}}', "values": values}]
        fires = f'count(ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}})'
        samples = [] if right else [{"labels": "{}", "value": 1}]
        check = {"expr": fires, "eval_time": "9m", "exp_samples": samples}
        tests.append({"interval": "30s", "input_series": series, "promql_expr_test": [check]})
    return {"rule_files": [str(ALERTS)], "evaluation_interval": "30s", "tests": tests}


def _alert_expressions() -> list[str]:
    return [rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def _panel_expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def _query(address: str, expression: str) -> list[Any]:
    """The samples; while Prometheus starts, none."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=30) as answer:
            result: list[Any] = json.load(answer)["data"]["result"]
            return result
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return []
        raise AssertionError(f"{expression}: {error.read().decode()}") from None
    except OSError:
        return []


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here: apt-get install prometheus")
    return found
