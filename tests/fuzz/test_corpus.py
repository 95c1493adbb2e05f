"""Every input of the corpus, on the decoder as it is installed: `make fuzz` goes on from these."""

from __future__ import annotations

from pathlib import Path

import pytest
import targets

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", [name for name in targets.TARGETS if not targets.TARGETS[name].cases])
def test_inputs_that_were_bad_once_or_lead_far_are_read_or_refused_as_documented(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        try:
            targets.TARGETS[name].run(path.read_bytes())
        except Exception as error:
            error.add_note(f"tests/fuzz/corpus/{name}/{path.name}")
            raise


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 200_000
