"""The package on a Spark that it does not work with: pip leaves that Spark alone, so the package says so itself."""

import os
import subprocess
import sys
import tomllib

import pytest
from support.source_tree import ROOT

import spark_kafka_group

DRAINED = ["--bootstrap-servers", "localhost:1", "--group", "billing", "--topics", "orders", "--output", "/tmp/none"]


@pytest.fixture
def ended(python):
    """The last line that a program writes as it fails."""

    def last_line(program):
        done = python("-c", program)
        assert done.returncode == 1, done.stdout
        return done.stderr.splitlines()[-1]

    return last_line


@pytest.mark.parametrize("version", ["3.5.6", "4.1.1", "5.0.0"])
def test_another_spark_is_named_in_one_sentence_when_the_package_is_imported(version, ended):
    line = ended(f"import pyspark; pyspark.__version__ = {version!r}; import spark_kafka_group.submit")
    assert line.startswith("spark_kafka_group.errors.SparkVersionError: spark-kafka-group needs pyspark 4.2 or newer, ")
    assert f"is {version}: pip install 'pyspark>=4.2,<5'" in line


def test_the_error_of_a_python_without_spark_names_the_package_to_install(ended):
    line = ended("import sys; sys.modules['pyspark'] = None; import spark_kafka_group")
    assert line.endswith("needs pyspark, which is not installed: pip install 'pyspark>=4.2,<5'")


def test_the_source_that_spark_finds_by_itself_names_another_spark_when_it_is_used(ended):
    line = ended(
        "import pyspark; pyspark.__version__ = '4.1.1'\n"
        "from pyspark_groupkafka import DefaultSource\n"
        "assert DefaultSource.name() == 'groupkafka'\n"
        "from pyspark.serializers import CloudPickleSerializer as Sent\n"
        "Sent().loads(Sent().dumps(DefaultSource))({})"
    )
    assert line.startswith("ImportError: spark-kafka-group needs pyspark 4.2 or newer, ")


def test_a_spark_that_knows_no_sources_in_python_is_named_in_one_sentence(ended):
    line = ended(
        "import sys, pyspark; pyspark.__version__ = '3.5.6'; sys.modules['pyspark.sql.datasource'] = None\n"
        "import pyspark_groupkafka"
    )
    assert line.startswith("spark_kafka_group.errors.SparkVersionError: spark-kafka-group needs pyspark 4.2 or newer, ")


@pytest.fixture
def without_java(python):
    """The lines that a program writes on stderr where PATH has no java, and its exit code."""
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_REMOTE")}

    def run(program, path, **variables):
        done = python(*program, **kept | {"PATH": str(path)} | variables)
        return done.stderr.splitlines(), done.returncode

    return run


NEEDED = "Kafka and Spark need Java 17 or newer: install it, or set JAVA_HOME"


@pytest.mark.parametrize(
    ("variables", "warned"),
    [
        ({}, [f"<string>:1: RuntimeWarning: {NEEDED}"]),
        ({"SPARK_REMOTE": "sc://spark:15002"}, []),
        ({"PYTHON_WORKER_FACTORY_PORT": "4711"}, []),
        ({"PYSPARK_GATEWAY_PORT": "4711"}, []),
    ],
)
def test_an_import_warns_where_java_is_missing_and_needed(variables, warned, tmp_path, without_java):
    assert without_java(["-c", "import spark_kafka_group"], tmp_path, **variables) == (warned, 0)


def test_a_command_that_needs_no_java_does_not_warn(tmp_path):
    command = [sys.executable, "-m", "spark_kafka_group", "--help"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


IN_A_BLOCK = """
from spark_kafka_group.submit import orderly, session
with orderly("billing"):
    session("first")
"""


@pytest.mark.parametrize("program", [["-c", IN_A_BLOCK], [ROOT / "jobs/drain.py", *DRAINED], [ROOT / "jobs/demo.py"]])
def test_a_program_without_java_ends_with_the_sentence_that_an_import_warns_with(program, tmp_path, without_java):
    lines, code = without_java(program, tmp_path)
    assert code == 1
    assert lines[-1].removeprefix("the demo has failed: ") == NEEDED


def test_a_java_that_spark_cannot_start_with_is_named(tmp_path, without_java):
    small = tmp_path / "bin/java"
    small.parent.mkdir()
    small.write_text("#!/bin/sh\ncase $* in *-version*) echo 'openjdk version \"25.0.2\"' >&2;; *) exit 1;; esac\n")
    small.chmod(0o755)
    lines, code = without_java(["-c", IN_A_BLOCK], "/usr/bin:/bin", JAVA_HOME=str(tmp_path))
    assert code == 1
    assert lines[-1].startswith(f"{small} lacks the module jdk.incubator.vector, which Spark asks for: ")


def test_the_version_of_the_package_is_that_of_its_distribution():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert spark_kafka_group.__version__ == project["version"]
