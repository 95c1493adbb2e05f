"""conf/kubernetes: the pods that spark-submit makes of it, as processes of a small Kubernetes of the tests."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from faults.gather import rows_in
from small_kubernetes import Kubernetes, fits
from support import committed, members, numbered, produce, topic_with

from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.node import free_ports

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "conf" / "kubernetes"
WITHIN_S = 180


def template(name):
    return yaml.safe_load((FOLDER / name).read_text())


@pytest.mark.parametrize("name", ["driver.yaml", "executor.yaml"])
def test_a_template_is_a_pod_whose_volumes_are_there(name):
    pod = template(name)
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    (container,) = pod["spec"]["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {each["name"] for each in pod["spec"]["volumes"]}


def test_the_volume_and_the_user_are_those_of_the_stream_in_one_pod():
    stream = next(
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all((ROOT / "conf/kubernetes.yaml").read_text())
        if each["kind"] == "Deployment"
    )
    for name in ("driver.yaml", "executor.yaml"):
        spec = template(name)["spec"]
        assert spec["volumes"] == stream["volumes"]
        assert spec["securityContext"] == stream["securityContext"]
    assert template("driver.yaml")["spec"]["terminationGracePeriodSeconds"] == stream["terminationGracePeriodSeconds"]


def test_files_that_the_settings_and_the_image_name_are_there():
    settings = dict(
        line.split(None, 1) for line in (FOLDER / "spark.conf").read_text().splitlines() if line and line[0] != "#"
    )
    templates = [value for name, value in settings.items() if name.endswith("podTemplateFile")]
    assert len(templates) == 2
    assert all((ROOT / path).is_file() for path in templates)
    copied = re.findall(r"^COPY (?:--\S+ )*(\S+)", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    assert os.access(FOLDER / "entrypoint", os.X_OK)


def test_the_entrypoint_runs_any_other_command():
    done = subprocess.run(
        [FOLDER / "entrypoint", sys.executable, "-c", "print(1)"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


def test_selectors_of_the_small_kubernetes():
    pod = {"metadata": {"labels": {"role": "executor", "id": "3"}}}
    assert fits(pod, "role=executor,id in (2,3)")
    assert not fits(pod, "role=executor,id notin (2, 3)")
    assert not fits(pod, "role=driver")
    assert not fits(pod, "id!=3")


@pytest.fixture
def kubernetes(installed, tmp_path):
    variables = installed.environment(SPARK_HOME=str(installed.spark_home))
    with Kubernetes(tmp_path / "pods", FOLDER / "entrypoint", variables) as kubernetes:
        yield kubernetes


@pytest.fixture
def submit(kubernetes, installed, kafka, group, tmp_path):
    """Submits the job as docs/cluster.md says."""

    def submit(topic):
        ports = free_ports(2)
        own = {
            "spark.kubernetes.driver.master": kubernetes.url,
            "spark.driver.port": ports[0],
            "spark.driver.blockManager.port": ports[1],
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.kubernetes.executor.deleteOnTermination": "true",
        }
        command = [
            "bash", installed.spark_home / "bin/spark-submit", "--master", f"k8s://{kubernetes.url}",
            "--deploy-mode", "cluster", "--name", "orders", "--properties-file", "conf/kubernetes/spark.conf",
            *[part for name, value in own.items() for part in ("--conf", f"{name}={value}")],
            f"local://{ROOT}/jobs/stream_to_parquet.py", "--bootstrap-servers", kafka.bootstrap_servers,
            "--group", group, "--topics", topic, "--output", tmp_path / "rows", "--checkpoint", tmp_path / "checkpoint",
        ]  # fmt: skip
        done = subprocess.run(
            [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=WITHIN_S,
            env=installed.environment(),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        (driver,) = kubernetes.pods("driver")
        return driver

    return submit


@pytest.mark.soak
def test_spark_submit_asks_for_the_pod_of_the_template(submit, kafka):
    spec = submit(topic_with(kafka, []))["spec"]
    (container,) = spec["containers"]
    assert container["image"] == "groupkafka-pods"
    assert container["args"][0] == "driver"
    assert f"local://{ROOT}/jobs/stream_to_parquet.py" in container["args"]
    assert spec["serviceAccountName"] == "spark"
    assert spec["terminationGracePeriodSeconds"] == 90
    assert spec["securityContext"] == template("driver.yaml")["spec"]["securityContext"]
    assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]


@pytest.mark.soak
def test_a_query_in_pods_goes_on_when_its_executor_is_killed(submit, kubernetes, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(400, 4), partitions=4)
    driver = submit(topic)

    def all_committed(each):
        failed = [pod for pod in kubernetes.pods("driver") if pod["status"]["phase"] == "Failed"]
        assert not failed, kubernetes.log(driver)
        return committed(kafka, group) == {(topic, p): each for p in range(4)}

    wait_until(lambda: all_committed(100), within=WITHIN_S)
    assert [member["client_id"] for member in members(kafka, group)] == ["groupkafka-driver"]
    executors = kubernetes.pods("executor")
    assert len(executors) == 2
    assert {"name": "data", "mountPath": "/data"} in executors[0]["spec"]["containers"][0]["volumeMounts"]
    for pid in kubernetes.processes(executors[0]):
        os.kill(pid, signal.SIGKILL)
    produce(kafka, topic, numbered(400, 4, first=400))
    wait_until(lambda: all_committed(200), within=WITHIN_S)
    seen = {pod["metadata"]["name"] for pod in executors}
    wait_until(lambda: {pod["metadata"]["name"] for pod in kubernetes.pods("executor")} - seen, within=WITHIN_S)

    kubernetes.delete("pods", driver["metadata"]["name"])
    wait_until(lambda: members(kafka, group) == [], within=60)
    wait_until(lambda: f"stopped; left group {group}" in kubernetes.log(driver), within=30)
    assert sorted(int(row.value[1:]) for row in rows_in(tmp_path / "rows")) == list(range(800))
