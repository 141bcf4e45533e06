"""The Helm chart: its values are used and explained; its objects refer to each other; the broker takes its settings.

Rendering needs `helm` on the PATH, such as by `go install helm.sh/helm/v3/cmd/helm@v3.18.6`. Kubernetes' schemas would
have to be fetched, so the objects are checked here: names that refer to each other, ports, volumes, selectors.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from tests.support.places import ROOT

CHART = ROOT / "config" / "helm" / "kafkalite"
HELM = shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm on the PATH")
TEMPLATE = ("template", "shop", "--kube-version", "1.30.0")  # a helm of `go install` is of no version by itself
Objects = dict[tuple[str, str], Any]

CLUSTER = {"replicaCount": 3, "zookeeper": {"connect": "zk-0:2181,zk-1:2181/kafkalite"}}
OUTSIDE = {"external": {"enabled": True, "host": "nodes.example.org"}}
BALANCED = {"enabled": True, "type": "LoadBalancer", "loadBalancerHosts": ["a.example.org", "b.example.org", "c"]}
CASES: dict[str, dict[str, Any]] = {
    "one": {},
    "cluster": {**CLUSTER, "settings": {"log.retention.ms": 604800000, "min.insync.replicas": 1}},
    "outside": OUTSIDE,
    "balanced": {**CLUSTER, "external": BALANCED},
    "in memory": {"persistence": {"enabled": False}, "metrics": {"annotate": False}},
    "all": {
        "image": {"pullSecrets": [{"name": "registry"}]},
        "envFrom": [{"secretRef": {"name": "passwords"}}],
        "extraVolumes": [{"name": "certificates", "secret": {"secretName": "certificates"}}],
        "extraVolumeMounts": [{"name": "certificates", "mountPath": "/certificates", "readOnly": True}],
        "persistence": {"storageClass": "fast", "annotations": {"a": "b"}},
        "serviceAccountName": "brokers",
        "podAnnotations": {"c": "d"},
        "podLabels": {"team": "data"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "brokers", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ],
        "priorityClassName": "high",
    },
}


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def paths(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of values; a mapping that templates take whole is one."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        yield path
        if isinstance(value, dict):
            yield from paths(value, f"{path}.")


def templates() -> str:
    return "\n".join(each.read_text() for each in sorted((CHART / "templates").iterdir()))


def test_templates_use_values_that_there_are_and_all_of_them() -> None:
    text = templates().replace("$external.", ".Values.external.").replace("$.Values", ".Values")
    used = set(re.findall(r"\.Values\.([A-Za-z][\w.]*)", text))
    known = set(paths(values()))
    assert used <= known, used - known
    unused = {
        path
        for path in known
        if path not in used
        and not any(each.startswith(f"{path}.") for each in used)
        and not any(path.startswith(f"{each}.") for each in used)
    }
    assert not unused


def test_each_group_of_values_has_a_comment_or_a_plain_name() -> None:
    """A reader of values.yaml alone knows the unit and the effect of what is not obvious."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    plain = {"replicaCount", "zookeeper", "image", "metrics", "persistence", "probes", "podSecurityContext",
             "securityContext", "podAnnotations", "podLabels", "nodeSelector", "tolerations", "affinity",
             "topologySpreadConstraints", "priorityClassName", "extraVolumeMounts", "listener"}  # fmt: skip
    for at, line in enumerate(lines):
        if (found := re.match(r"([A-Za-z]+):", line)) and found[1] not in plain:
            assert lines[at - 1].startswith("#"), line


def test_the_values_of_the_page_are_those_of_the_chart() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs/containers.md").read_text(), re.MULTILINE | re.DOTALL)
    shown, known = yaml.safe_load(text), values()
    settings = shown.pop("settings")
    assert set(paths(shown)) <= set(paths(known))
    assert settings.keys() <= BrokerConfig.by_name.keys()


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None and chart["appVersion"] == version[1] and chart["apiVersion"] == "v2"


def helm(*arguments: str, given: Mapping[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(given)))
    command = [str(HELM), *arguments, "--values", str(file)]
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def rendered(given: Mapping[str, Any], folder: Path, chart: Path = CHART) -> Objects:
    """The objects by kind and name."""
    done = helm(*TEMPLATE, str(chart), "--namespace", "data", given=given, folder=folder)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(found) == len(objects)
    return found


@needs_helm
@pytest.mark.parametrize("given", CASES.values(), ids=list(CASES))
def test_helm_lint_finds_nothing(given: Mapping[str, Any], tmp_path: Path) -> None:
    done = helm("lint", "--strict", "--quiet", str(CHART), given=given, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
@pytest.mark.parametrize("given", CASES.values(), ids=list(CASES))
def test_the_objects_refer_to_each_other(given: Mapping[str, Any], tmp_path: Path) -> None:
    objects = rendered(given, tmp_path)
    the_set = objects["StatefulSet", "shop-kafkalite"]
    pod = the_set["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    labels, ports = pod["metadata"]["labels"], {one["name"]: one["containerPort"] for one in container["ports"]}
    assert all(len(name) <= 15 for name in ports)
    assert the_set["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert ("Service", the_set["spec"]["serviceName"]) in objects
    count = the_set["spec"]["replicas"]
    for (kind, name), one in objects.items():
        assert one["metadata"]["namespace"] == "data" and len(name) <= 63
        if kind == "Service":
            selector = dict(one["spec"]["selector"])
            alone = selector.pop("statefulset.kubernetes.io/pod-name", None)
            assert alone in (None, *(f"shop-kafkalite-{index}" for index in range(count)))
            assert selector.items() <= labels.items()
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= ports.keys()
    assert objects["Service", "shop-kafkalite-headless"]["spec"]["clusterIP"] == "None"
    claims = {one["metadata"]["name"] for one in the_set["spec"].get("volumeClaimTemplates", [])}
    volumes = [*claims, *(one["name"] for one in pod["spec"]["volumes"])]
    assert len(volumes) == len(set(volumes))
    assert {one["name"] for one in container["volumeMounts"]} <= set(volumes)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "metrics"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"] and not pod["spec"]["enableServiceLinks"]
    (settings,) = (one for one in pod["spec"]["volumes"] if one["name"] == "settings")
    assert ("ConfigMap", settings["configMap"]["name"]) in objects
    assert (("PodDisruptionBudget", "shop-kafkalite") in objects) == (count > 1)


def served(objects: Objects, index: int, folder: Path) -> dict[str, str]:
    """The settings that the container's command starts broker `index` with."""
    (container,) = objects["StatefulSet", "shop-kafkalite"]["spec"]["template"]["spec"]["containers"]
    file, echo = folder / "server.properties", folder / "kafkalite"
    file.write_text(objects["ConfigMap", "shop-kafkalite"]["data"]["server.properties"])
    echo.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done\n')
    echo.chmod(0o755)
    command = [*container["command"], *container["args"]]
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "POD_NAME": f"shop-kafkalite-{index}"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[:2] == ["serve", "/etc/kafkalite/server.properties"]
    assert set(said[2::2]) == {"--override"}
    return {**read_properties(str(file)), **dict(each.split("=", 1) for each in said[3::2])}


@needs_helm
def test_one_broker_is_started_with_settings_that_it_knows(tmp_path: Path) -> None:
    config = BrokerConfig.load(served(rendered({}, tmp_path), 0, tmp_path))
    assert (config.warnings, config.broker_id, config.zookeeper_connect) == ((), 0, None)
    assert config.data_dirs == ("/data/logs",) and config.metrics_listener == ":9404"
    properties = served(rendered(OUTSIDE, tmp_path), 0, tmp_path)
    assert properties["advertised.listeners"] == (
        "INTERNAL://shop-kafkalite-0.shop-kafkalite-headless.data.svc.cluster.local:9092,"
        "EXTERNAL://nodes.example.org:30092"
    )
    assert [one.port for one in BrokerConfig.load(properties).listeners] == [9092, 9094]


@needs_helm
def test_a_cluster_has_an_id_and_addresses_for_each_broker(tmp_path: Path) -> None:
    objects = rendered(CASES["cluster"] | {"external": BALANCED}, tmp_path)
    for index in range(3):
        properties = served(objects, index, tmp_path)
        config = BrokerConfig.load(properties)
        assert (config.warnings, config.broker_id) == ((), index)
        assert config.zookeeper_connect == CLUSTER["zookeeper"]["connect"]  # type: ignore[index]
        assert properties["advertised.listeners"].endswith(f",EXTERNAL://{BALANCED['loadBalancerHosts'][index]}:9094")  # type: ignore[index]
        assert (properties["default.replication.factor"], properties["min.insync.replicas"]) == ("3", "1")
        assert properties["log.retention.ms"] == "604800000"
    nodes = rendered({**CLUSTER, **OUTSIDE}, tmp_path)
    ports = [nodes["Service", f"shop-kafkalite-external-{index}"]["spec"]["ports"][0]["nodePort"] for index in range(3)]
    assert ports == [30092, 30093, 30094]


@needs_helm
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"replicaCount": 3}, "needs zookeeper.connect"),
        ({"external": {"enabled": True}}, "needs external.host"),
        ({"external": {"enabled": True, "type": "LoadBalancer"}}, "one of external.loadBalancerHosts for each broker"),
        ({"settings": {"log.dirs": "/other"}}, "settings.log.dirs: the chart sets it"),
    ],
)
def test_values_that_contradict_each_other_are_refused(given: Mapping[str, Any], why: str, tmp_path: Path) -> None:
    done = helm(*TEMPLATE, str(CHART), given=given, folder=tmp_path)
    assert done.returncode != 0 and why in done.stderr


@needs_helm
def test_the_notes_name_the_address(tmp_path: Path) -> None:
    """Only an installation prints them; here they are the text of one more object."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    text = textwrap.indent((CHART / "templates" / "NOTES.txt").read_text(), "    ")
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: notes\n  namespace: data\ndata:\n  text: |\n"
    (chart / "templates" / "notes.yaml").write_text(head + text)
    notes = rendered(OUTSIDE, tmp_path, chart)["ConfigMap", "notes"]["data"]["text"]
    assert "shop-kafkalite.data.svc.cluster.local:9092" in notes and "nodes.example.org:30092" in notes
