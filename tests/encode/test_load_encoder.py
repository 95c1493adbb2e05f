"""Which twin of the encoder the option ``encoder`` loads."""

from __future__ import annotations

import logging
import sys

import pytest

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor import compiled_twin, encode

PACKAGE = "spark_kafka_group.executor.encode"


@pytest.fixture
def without_compiled_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"{PACKAGE}._encode_c", None)
    monkeypatch.delattr(encode, "_encode_c", raising=False)
    monkeypatch.setattr(compiled_twin, "_warned", set())


def test_a_twin_is_loaded_by_its_name() -> None:
    from spark_kafka_group.executor.encode import _encode_c, _encode_py

    assert encode.load("python") is _encode_py
    assert encode.load("c") is _encode_c
    assert encode.load("auto") is _encode_c


@pytest.mark.usefixtures("without_compiled_twin")
def test_the_compiled_twin_by_name_fails_where_it_was_not_built_and_says_how_to_get_it() -> None:
    with pytest.raises(OptionError, match=r"encoder=c: .*encoder was not built.*(C compiler|build_ext)"):
        encode.load("c")


@pytest.mark.usefixtures("without_compiled_twin")
def test_auto_falls_back_to_python_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    from spark_kafka_group.executor.encode import _encode_py

    with caplog.at_level(logging.WARNING):
        assert encode.load("auto") is encode.load("auto") is _encode_py
    assert len(caplog.records) == 1
    assert "encoded slowly" in caplog.text
