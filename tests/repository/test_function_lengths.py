"""How long a function may be. ruff holds how complex one may be."""

import ast

from support.source_tree import ROOT, nodes, parsed

LONGEST = 40


def lines_of(function):
    """Lines of the function without its docstring."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    return function.end_lineno - function.lineno + 1 - (first.end_lineno - first.lineno + 1 if documented else 0)


def functions():
    for folder in ("spark_kafka_group", "pyspark_groupkafka", "jobs"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in nodes(parsed(file)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield file, node


def has_a_comment(file, function):
    lines = file.read_text().splitlines()[function.lineno : function.end_lineno]
    return any(line.lstrip().startswith("#") for line in lines)


def test_a_function_of_more_than_forty_lines_has_a_comment_that_says_why():
    all_of_them = list(functions())
    long = [(file, function) for file, function in all_of_them if lines_of(function) > LONGEST]
    assert len(all_of_them) > 1000
    assert [f"{file}:{function.lineno}" for file, function in long if not has_a_comment(file, function)] == []
