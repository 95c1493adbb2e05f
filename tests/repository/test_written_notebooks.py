"""notebooks/ as they are committed: all have run, and nothing in them is of the machine that ran them."""

import base64
import getpass
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "notebooks").glob("*.ipynb"))
COLUMNS = 88
"""Jupyter and GitHub cut lines above some 100."""
OF_A_MACHINE = re.compile(r"/tmp/|/home/|/root/|/Users/|/work/|127\.0\.0\.1|localhost|Traceback|WARN")


def read(file):
    return json.loads(file.read_text())


def codes(file):
    return [cell for cell in read(file)["cells"] if cell["cell_type"] == "code"]


def outputs(file):
    return [output for cell in codes(file) for output in cell["outputs"]]


def test_the_notebooks_are_numbered():
    assert [file.name[0] for file in FILES] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
class TestEach:
    def test_all_cells_of_a_notebook_have_run_in_order_and_without_an_error(self, file):
        assert [cell["execution_count"] for cell in codes(file)] == list(range(1, len(codes(file)) + 1))
        assert {output["output_type"] for output in outputs(file)} <= {"stream", "display_data", "execute_result"}
        assert {output["name"] for output in outputs(file) if output["output_type"] == "stream"} <= {"stdout"}

    def test_a_page_without_a_kernel_shows_its_outputs(self, file):
        kinds = {kind for output in outputs(file) for kind in output.get("data", ())}
        assert kinds <= {"image/png", "text/html", "text/plain"}
        assert outputs(file)

    def test_nothing_in_a_notebook_is_of_the_machine_that_ran_it(self, file):
        shown = "\n".join(
            "".join(text) for output in outputs(file) for text in (
                output.get("text", ()), *(text for kind, text in output.get("data", {}).items() if kind != "image/png"),
            )
        )  # fmt: skip
        assert OF_A_MACHINE.findall(shown) == []
        assert re.findall(rf"\b{re.escape(getpass.getuser())}\b(?! *\n \|--)", shown) == []

    def test_metadata_of_a_notebook_are_the_same_on_each_machine(self, file):
        assert read(file)["metadata"] == {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        assert [cell["metadata"] for cell in read(file)["cells"] if cell["metadata"]] == []

    def test_a_notebook_ends_what_it_has_started(self, file):
        assert "".join(codes(file)[-1]["source"]) == "sandbox.close()"

    def test_a_page_shows_whole_lines_of_code(self, file):
        lines = [line for cell in codes(file) for line in "".join(cell["source"]).splitlines()]
        assert [line for line in lines if len(line) > COLUMNS] == []

    def test_a_notebook_needs_one_extra(self, file):
        assert "with the extra `notebook`" in "".join(read(file)["cells"][0]["source"])
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(extras["processing"]) <= set(extras["notebook"])


def test_the_second_notebook_begins_with_the_picture_that_it_ends_with():
    picture = base64.b64decode(outputs(FILES[1])[-1]["data"]["image/png"])
    assert (ROOT / "docs/pictures/two-queries.png").read_bytes() == picture
    assert "](../docs/pictures/two-queries.png)" in "".join(read(FILES[1])["cells"][1]["source"])


def test_all_notebooks_begin_with_the_same_cell():
    assert len({"".join(codes(file)[0]["source"]) for file in FILES}) == 1
