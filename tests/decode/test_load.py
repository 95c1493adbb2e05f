"""Which twin the option ``decoder`` loads."""

from __future__ import annotations

import logging
import sys

import pytest

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor import compiled_twin, decode

PACKAGE = "spark_kafka_group.executor.decode"


@pytest.fixture
def without_compiled_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"{PACKAGE}._decode_c", None)
    monkeypatch.delattr(decode, "_decode_c", raising=False)
    monkeypatch.setattr(compiled_twin, "_warned", set())


def test_a_twin_is_loaded_by_its_name() -> None:
    from spark_kafka_group.executor.decode import _decode_c, _decode_py

    assert decode.load("python") is _decode_py
    assert decode.load("c") is _decode_c
    assert decode.load("auto") is _decode_c


@pytest.mark.usefixtures("without_compiled_twin")
def test_the_compiled_twin_by_name_fails_where_it_was_not_built_and_says_how_to_get_it() -> None:
    with pytest.raises(OptionError, match=r"decoder=c: .*not built.*(C compiler|build_ext)"):
        decode.load("c")


@pytest.mark.usefixtures("without_compiled_twin")
def test_auto_falls_back_to_python_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    from spark_kafka_group.executor.decode import _decode_py

    with caplog.at_level(logging.WARNING):
        assert decode.load("auto") is decode.load("auto") is _decode_py
    assert len(caplog.records) == 1
    assert "decoded slowly" in caplog.text
