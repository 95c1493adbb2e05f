"""Lines of the tools on a terminal, and where a script reads them."""

from spark_kafka_group.tools import formatting
from spark_kafka_group.values.commit_metadata import Writer

MEMBER_ID = "groupkafka-0d6f7b8c-4c1e-4b62-9f3e-7d0a5b1c2e3f-6a1f0c52-8a86-4f0e-9c3b-2f7f3a9d8e01"


def test_a_long_line_of_offsets_is_folded_on_a_terminal_only(terminal):
    line = "2026-01-31T09:30:00.000Z  generation     12  protocol range  " + "; ".join(
        [f"{MEMBER_ID} assigned t:0"] * 3
    )
    assert formatting.sentence(line) == line
    terminal(110)
    lines = formatting.sentence(line).splitlines()
    assert lines[0].startswith("2026-01-31T09:30:00.000Z  generation     12  protocol range")
    assert len(lines) == 4
    assert max(map(len, lines)) <= 110


def test_texts_by_name_break_between_words_on_a_terminal(terminal, capsys):
    texts = {"drain": "reads what is new", "process": "calls a function"}
    assert formatting.texts("PURPOSE", texts) == (
        "NAME     PURPOSE\ndrain    reads what is new\nprocess  calls a function"
    )
    terminal(20)
    assert formatting.texts("PURPOSE", texts) == (
        "NAME     PURPOSE\ndrain    reads what\n         is new\nprocess  calls a\n         function"
    )


def test_a_commit_from_before_the_first_batch_has_no_number_of_a_batch():
    assert formatting.written_by(Writer("r", 3, -1)) == "reader r, generation 3, before its first batch"
    assert formatting.written_by(Writer("r", 3, 0)) == "reader r, generation 3, batch 0"
