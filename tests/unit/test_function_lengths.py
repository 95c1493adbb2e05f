"""How long a function may be. ruff holds how complex one may be."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST = 40


def lines_of(function):
    """Lines of the function without its docstring."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    return function.end_lineno - function.lineno + 1 - (first.end_lineno - first.lineno + 1 if documented else 0)


def functions():
    for folder in ("spark_kafka_group", "pyspark_groupkafka", "jobs"):
        for file in (ROOT / folder).rglob("*.py"):
            source = file.read_text()
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", node, source


def test_a_function_of_more_than_forty_lines_has_a_comment_that_says_why():
    lengths = {name: lines_of(node) for name, node, _ in functions()}
    commented = {
        name
        for name, node, source in functions()
        if any(line.lstrip().startswith("#") for line in source.splitlines()[node.lineno : node.end_lineno])
    }
    assert len(lengths) > 1000
    assert {name: length for name, length in lengths.items() if length > LONGEST and name not in commented} == {}
