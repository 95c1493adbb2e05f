"""Releases: an sdist that builds, and a wheel with the package and nothing else."""

import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

DECODE = "spark_kafka_group/executor/decode"
ENCODE = "spark_kafka_group/executor/encode"
SCRIPT = Path(__file__).parent / "decode_captured.py"


@pytest.fixture(scope="module")
def in_sdist(sdist):
    """Names below the sdist's one folder."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


@pytest.fixture(scope="module")
def in_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def modules(names):
    packages = ("spark_kafka_group/", "pyspark_groupkafka/")
    return {name for name in names if name.endswith(".py") and name.startswith(packages)}


def test_the_sdist_has_the_sources_of_decoder_and_encoder_and_not_their_generated_c(in_sdist):
    assert {f"{DECODE}/_decode_c.pyx", f"{DECODE}/_decode_c.pyi", f"{DECODE}/crc32c.h"} <= in_sdist
    assert {f"spark_kafka_group/executor/{name}.pxi" for name in ("cursor", "utf8")} <= in_sdist
    assert {f"{ENCODE}/_encode_c.pyx", f"{ENCODE}/_encode_c.pyi"} <= in_sdist
    assert {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"} <= in_sdist
    assert not [name for name in in_sdist if name.endswith((".c", ".so", ".pyc")) or name.startswith("tests")]


def test_the_wheel_has_what_runs_and_nothing_it_was_built_from(in_sdist, in_wheel):
    besides = {name for name in in_sdist if name.startswith(("jobs/", "conf/"))}
    inside = {f"spark_kafka_group/{name}" for name in besides}
    assert {f"spark_kafka_group/{name}" for name in ("jobs/drain.py", "conf/spark-defaults.conf")} <= inside
    assert inside <= in_wheel
    assert modules(in_wheel - inside) == modules(in_sdist)
    at_start = {"groupkafka.pth", "groupkafka_start_path.py"}
    assert at_start <= in_wheel
    own = in_wheel - at_start
    rest = {Path(name).suffix for name in own - modules(in_wheel) - inside if ".dist-info/" not in name}
    assert rest == {".json", ".pyi", ".so", ".typed"}
    assert {name.partition("/")[0].partition("-")[0] for name in own} == {"spark_kafka_group", "pyspark_groupkafka"}


def test_one_wheel_is_for_every_python(wheel):
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        assert {f"{DECODE}/_decode_c.abi3.so", f"{ENCODE}/_encode_c.abi3.so"} <= set(archive.namelist())


def test_the_metadata_names_the_licence_and_who_made_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = message_from_bytes(archive.read(f"{folder}/METADATA"))
        licence = archive.read(f"{folder}/licenses/LICENSE").decode()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert metadata["Author"] == "The groupkafka authors"
    assert "Operating System :: POSIX" in metadata.get_all("Classifier")
    assert {"pyspark", "kafka-python<3.1,>=3.0.12"} <= set(metadata.get_all("Requires-Dist"))


def test_the_compiled_decoder_of_the_wheel_reads_records(installed, tmp_path):
    ran = subprocess.run(
        [installed.python, "-I", SCRIPT], capture_output=True, text=True, check=False, cwd=tmp_path
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(installed.packages))
