"""Runs the notebooks of notebooks/ and writes their outputs into them: `make notebooks`.

PYTHONPATH=tests python docs/run_notebooks.py [notebooks/1-explore-a-topic.ipynb ...]
"""

from __future__ import annotations

import argparse
import base64
import html
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from support.registries import Apicurio

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
AS_FILES = {"picture-overview": Path(__file__).parent / "pictures" / "two-queries.png"}
"""Files that pages show, by the id of the cell whose picture they have."""
WIDGET, WIDGETS = "application/vnd.jupyter.widget-view+json", "application/vnd.jupyter.widget-state+json"
CELL_WITHIN_S = 180
BAR = 20


def run(notebook: Any, directory: str | Path) -> Any:
    """Run all cells in a kernel of their own, which works in `directory`; the outputs are in the same notebook.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        When a cell raises.
    """
    resources = {"metadata": {"path": str(directory)}}
    NotebookClient(
        notebook, kernel_name="python3", resources=resources, timeout=CELL_WITHIN_S, record_timing=False
    ).execute()
    return notebook


def settled(notebook: Any) -> Any:
    """The same notebook with what a page without a kernel can show, and nothing of the machine that ran it.

    A bar is the text of its last state. What Spark's JVM writes to stderr when it starts is left out.
    """
    widgets = notebook.metadata.pop("widgets", {}).get(WIDGETS, {}).get("state", {})
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_without_widgets(output, widgets) for output in cell.outputs if not _is_of_jvm(output)]
    return notebook


def _is_of_jvm(output: Any) -> bool:
    return output.output_type == "stream" and output.name == "stderr"


def _without_widgets(output: Any, widgets: Any) -> Any:
    view = output.get("data", {}).get(WIDGET)
    if view is None:
        return output
    return nbformat.v4.new_output("stream", name="stdout", text=_bar(view["model_id"], widgets) + "\n")


def _bar(model: str, widgets: Any) -> str:
    """A bar of tqdm's: its title, how far it is, and the numbers behind it."""
    children = [widgets[child.removeprefix("IPY_MODEL_")]["state"] for child in widgets[model]["state"]["children"]]
    before, bar, after = children
    filled = round(BAR * bar["value"] / (bar["max"] or 1))
    title, numbers = (html.unescape(re.sub(r"<[^>]*>", "", part["value"])) for part in (before, after))
    return f"{title}|{'█' * filled:{BAR}}|{numbers}".replace("\u2007", " ")


def write_files(notebook: Any) -> None:
    """Write the pictures of cells that are files, too."""
    for cell in notebook.cells:
        if cell.id in AS_FILES:
            AS_FILES[cell.id].write_bytes(base64.b64decode(cell.outputs[0].data["image/png"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(NOTEBOOKS.glob("*.ipynb")))
    files = parser.parse_args().notebooks
    with Apicurio() as registry:
        os.environ["SCHEMA_REGISTRY_URL"] = registry.url
        for file in files:
            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as directory:
                notebook = settled(run(nbformat.read(file, as_version=4), directory))
            nbformat.write(notebook, file)
            write_files(notebook)
            print(f"{file}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
