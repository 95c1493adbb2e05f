"""README and docs/: every link leads somewhere, tables are the code's, and pages are in one order."""

import ast
import importlib.util
import itertools
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
import tables

from spark_kafka_group.__main__ import parser
from spark_kafka_group.options import OPTION_NAMES
from spark_kafka_group.options.producing import SINK_DECLARED
from spark_kafka_group.options.unsupported import UNSUPPORTED, UNSUPPORTED_IN_SINKS
from spark_kafka_group.spark.installation import BELOW, LOWEST
from spark_kafka_group.testing.download import VERSION
from spark_kafka_group.wire.reactions import REACTIONS, Reaction

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
TEXTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(file for folder in ("benchmarks", "docs", "tests") for file in (ROOT / folder).rglob("*.md")),
]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
IN_THE_TREE = re.compile(r"(?:benchmarks|conf|docs|jobs|spark_kafka_group|tests)/[\w./-]*\w")

OF_NO_OPTION = {
    "availablenow", "catchup", "checkpointlocation", "kafka.internal", "minutes", "once", "ordering", "path",
    "processingtime", "target", "threads",
}  # fmt: skip
"""Settings of others, and arguments of Python."""


OF_RECIPES = {"airflow", "confluent_kafka", "deltalake", "pyiceberg"}
"""Packages that are too large for CI: tests/spark/test_recipes.py runs them."""


@cache
def prose(file):
    """A page without its blocks of code."""
    return FENCE.sub("", file.read_text())


def links(text):
    return LINK.findall(re.sub(r"`[^`]*`", "code", text))


@cache
def anchors(file):
    """Anchors of a page's headings, as GitHub makes them."""
    found = []
    for heading in re.findall(r"^#{1,6} (.*)$", prose(file), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.append(re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-"))
    return found


def problem(file, target):
    """Why a link leads nowhere; None if it leads somewhere."""
    if ":" in target:
        return None if re.fullmatch(r"https://[\w.-]+\.[a-z]+(/[\w./#?=&%~-]*)?", target) else "no address of the web"
    path, _, anchor = target.partition("#")
    there = (file.parent / path).resolve() if path else file
    if not there.is_relative_to(ROOT) or not there.is_file():
        return "no such file"
    if "#" not in target:
        return None
    if there.suffix != ".md":
        return "only pages have anchors: lines of code move"
    return None if anchor in anchors(there) else "no such heading"


def in_order():
    """The pages, as README lists them."""
    table = (ROOT / "README.md").read_text().partition("## Documentation")[2].partition("\n## ")[0]
    return re.findall(r"^\| \[([^\]]*)\]\(docs/([\w-]+\.md)\) \| (.*) \|$", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("#guarantees", None),
        ("docs/options.md#group", None),
        ("jobs/drain.py", None),
        ("jobs", "no such file"),
        ("https://kafka.apache.org/documentation/#configuration", None),
        ("#no-such-heading", "no such heading"),
        ("docs/options.md#groups", "no such heading"),
        ("docs/option.md", "no such file"),
        ("../elsewhere.md", "no such file"),
        ("setup.py#L3", "only pages have anchors: lines of code move"),
        ("http//kafka.apache.org:80", "no address of the web"),
    ],
)
def test_a_link_that_leads_nowhere_is_seen(target, why):
    assert problem(ROOT / "README.md", target) == why


def test_links_are_found_in_texts_and_not_in_code():
    assert links("see [a](b.md), ![c](d.png) and `[e](f.md)`: [`g`](h.md#i)") == ["b.md", "d.png", "h.md#i"]


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.name)
def test_every_link_leads_somewhere(file):
    assert {target: problem(file, target) for target in links(prose(file)) if problem(file, target)} == {}


def written_by_hand(file):
    """A page's text without the tables that the code has."""
    return re.sub(r"<!-- begin .*?<!-- end -->", "", file.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("file", [ROOT / "README.md", *PAGES], ids=lambda file: file.name)
def test_every_file_and_every_target_of_make_that_is_named_exists(file):
    commands = re.findall(r"`([^`\n]+)`|^((?: {4}|make |python ).*)$", written_by_hand(file), re.MULTILINE)
    code = " ".join(word for found in commands for word in found)
    assert [path for path in IN_THE_TREE.findall(code) if not (ROOT / path).exists()] == []
    targets = re.findall(r"^([a-z-]+)[^=\n]*:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z-]+)", code)) <= set(targets)


@pytest.mark.parametrize("file", [ROOT / "README.md", *PAGES], ids=lambda file: file.name)
def test_every_option_that_is_named_is_one(file):
    page = written_by_hand(file)
    assigned = re.findall(r"[`(\"]([a-z][A-Za-z]*)=[^`\"]*[`\"]|\.option\(\"([^\"]+)\"", page)
    named = {*re.findall(r"[`\"](kafka\.[a-z][\w.]*\w)\b", page), *(a or b for a, b in assigned)}
    known = OPTION_NAMES | SINK_DECLARED.keys() | set(UNSUPPORTED) | set(UNSUPPORTED_IN_SINKS) | OF_NO_OPTION
    assert {name for name in named if name.lower() not in known} == set()


@pytest.mark.parametrize("file", [ROOT / "README.md", *PAGES], ids=lambda file: file.name)
def test_every_example_in_python_is_python_and_imports_names_that_exist(file):
    for code in re.findall(r"^```python\n(.*?)^```", file.read_text(), re.DOTALL | re.MULTILINE):
        tree = ast.parse(f"_ = (_\n{code})" if code.startswith(".") else code)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] not in OF_RECIPES:
                assert all(is_there(node.module, alias.name) for alias in node.names)


def is_there(module, name):
    """Whether a name can be imported from a module: one of its own, or a module in it."""
    return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.name)
def test_no_two_headings_of_a_page_have_one_anchor(file):
    assert len(anchors(file)) == len(set(anchors(file)))


def test_the_readme_is_short_and_names_every_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
    assert sorted(file for _, file, _ in in_order()) == [file.name for file in PAGES]


def test_each_page_has_its_title_its_question_and_a_link_to_the_next():
    pages = in_order()
    for number, (title, file, question) in enumerate(pages):
        lines = (DOCS / file).read_text().splitlines()
        assert lines[:3] == [f"# {title}", "", f"*{question}*"]
        following = pages[number + 1 :]
        link = f"Next: [{following[0][0]}]({following[0][1]})" if following else "Back to the [README](../README.md)."
        assert lines[-1] == link


def test_each_page_of_the_design_has_a_question_as_its_title_and_is_named_by_design_md():
    design = (ROOT / "DESIGN.md").read_text()
    named = dict(re.findall(r"^- \[(.*)\]\((docs/design/.*)\)$", design, re.MULTILINE))
    pages = {str(page.relative_to(ROOT)): page.read_text() for page in (DOCS / "design").glob("*.md")}
    assert {question: pages.pop(page).splitlines()[0] for question, page in named.items()} == {
        question: f"# {question}" for question in named
    }
    assert pages == {}


def test_the_site_has_the_pages_in_the_readmes_order():
    named = re.findall(r"- (docs/[\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [f"docs/{file}" for _, file, _ in in_order()]
    assert named[: len(pages)] == pages
    assert set(named) == {str(file.relative_to(ROOT)) for file in DOCS.rglob("*.md")}


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_a_list_begins_after_an_empty_line_as_the_sites_markdown_wants_it(file):
    lines = prose(file).splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r"(- |\d+\. )", line):
            assert re.match(r"(- |\d+\. |  |$)", before), line


def test_the_page_of_tools_has_every_command():
    named = re.findall(r"^\| `([a-z]+)` \|", (DOCS / "tools.md").read_text(), re.MULTILINE)
    (commands,) = (action for action in parser()._actions if action.dest == "command")
    assert sorted(named) == sorted(commands.choices)


class TestTables:
    @pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
    def test_a_page_has_the_tables_that_the_code_has(self, file):
        text = file.read_text()
        assert tables.filled(text) == text, "make docs"

    def test_every_table_is_in_one_page(self):
        found = [name for file in PAGES for _, name, _ in tables.TABLE.findall(file.read_text())]
        assert sorted(found) == sorted(tables.tables())

    def test_the_table_of_reactions_has_a_row_an_error_and_a_legend_of_all_reactions(self):
        lines = tables.reactions_table().splitlines()
        assert (
            lines[0] == "| error | FindCoordinator | JoinGroup | SyncGroup | Heartbeat | OffsetCommit | OffsetFetch |"
        )
        rows = [line for line in lines if line.startswith("| `")]
        assert len(rows) == len(REACTIONS)
        assert all(line.count("|") == 8 for line in rows)
        assert "| `UNKNOWN_MEMBER_ID` |  | join as new | join as new | join as new | join as new |  |" in rows
        used = {reaction for reactions in REACTIONS.values() for reaction in reactions.values()}
        assert sum(line.startswith("- **") for line in lines) == len(used - {Reaction.NOT_SENT}) == 7

    def test_a_table_that_has_changed_is_written_again(self):
        page = "a\n<!-- begin metrics; `make docs` writes this -->\n| of before |\n<!-- end -->\nb\n"
        made = tables.filled(page)
        assert "of before" not in made
        assert "| `records-lag-max` | records |" in made
        assert (made[:2], made[-2:], tables.filled(made)) == ("a\n", "b\n", made)


def test_the_page_of_versions_says_which_ones_are_tested():
    page = (DOCS / "compatibility.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pyspark,) = re.findall(r"^PYSPARK \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    row = dict(
        re.findall(r"^\| ([^|]+?)(?: \([^|]*\)|, [^|]*)? \| (.*) \|$", page.partition("## Clusters")[0], re.MULTILINE)
    )
    assert f"| {pyspark}: all tests." in row["Spark"]
    assert f"| {VERSION} |" in row["Kafka's brokers"]
    assert all(line in row["Kafka's brokers"] for line in older_lines())
    assert row["Python"].startswith(f"{project['requires-python'].removeprefix('>=')} or newer")
    extras = project["optional-dependencies"]
    of_spark = "pyspark>={}.{},<{}".format(*LOWEST, BELOW[0])
    assert project["dependencies"][0] == "pyspark"
    for text in (of_spark, *project["dependencies"][1:], *extras["processing"]):
        name, low, high = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<([\d.]+))?", text).groups()
        bound = f"{low} or newer" + (f", below {high}" if high else "")
        assert row[name.replace("pyspark", "Spark")].startswith(bound)


def older_lines():
    """Versions of brokers that `make soak` runs."""
    text = (ROOT / "tests/broker/test_broker_versions.py").read_text()
    return re.findall(r'"([\d.]+)"', re.search(r"^LINES = .*$", text, re.MULTILINE)[0])
