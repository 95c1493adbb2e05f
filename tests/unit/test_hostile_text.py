"""Text that others give: JSON that is too deep or too long, names that steer terminals, modules that exit."""

import json
import logging
import pickle
import sys
from pathlib import Path

import pytest

from spark_kafka_group.__main__ import main
from spark_kafka_group.driver.hooks import Hooks
from spark_kafka_group.driver.membership.other_sources import OtherSources
from spark_kafka_group.driver.reporting.query_metrics import Metrics
from spark_kafka_group.driver.steps.backlog import PausedPartitions
from spark_kafka_group.errors import BrokerError, OffsetFormatError, OptionError, ReadError
from spark_kafka_group.explore.decoded import json_objects
from spark_kafka_group.offsets_topic import consumer_group_records as newer
from spark_kafka_group.offsets_topic import decoding
from spark_kafka_group.options import DECLARED, LONGEST_TEXT, Options, parsing
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.text.foreign_text import parsed, printable
from spark_kafka_group.tools import describe, event_logs
from spark_kafka_group.tools.group_records import WrittenRecord, as_json, as_line
from spark_kafka_group.values import user_classes
from spark_kafka_group.values.commit_metadata import writer_of
from spark_kafka_group.values.files import READERS_FOLDER
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition
from spark_kafka_group.wire.admin import BrokerNode, LogRecord
from spark_kafka_group.wire.group.members import DescribedMember

DEEP = "[" * 100_000
NESTED = "[" * 900 + "]" * 900
"""JSON that Python reads, and may fail to show, depending on the stack it is on."""
LONG = "9" * 5_000
EVIL = "\x1b[2J\u202eevil\r\n\x00"
SHOWN = r"\x1b[2J\u202eevil\r\n\x00"

HOSTILE = {
    "deep": DEEP,
    "nested": NESTED,
    "nested objects": '{"t":' * 900 + "1" + "}" * 900,
    "nested in a topic": f'{{"t": {NESTED}}}',
    "nested in a partition": f'{{"t": {{"0": {NESTED}}}}}',
    "nested in a list": f'{{"t": [{NESTED}]}}',
    "long": f'{{"t": {{"0": {LONG}}}}}',
    "long in a list": f'{{"t": [{LONG}]}}',
    "long below zero": f'{{"t": {{"0": -{LONG}}}}}',
    "no number": '{"t": {"0": NaN}}',
    "infinite": '{"t": {"0": 1e999}}',
    "long partition": f'{{"t": {{"{LONG}": 1}}}}',
}
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


# JSON


@pytest.mark.parametrize(
    "option",
    ["assign", "pausePartitions", "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp",
     "endingOffsetsByTimestamp"],
)  # fmt: skip
@hostile
def test_an_option_says_what_is_wrong_with_json_and_how_long_it_may_be(option, text):
    given = {"kafka.bootstrap.servers": "localhost:1", option: text}
    if option != "assign":
        given["subscribe"] = "t"
    with pytest.raises(OptionError, match=rf"(?i)^{option} \(.*\) (must be|has|is) ") as raised:
        Options.parse(given)
    assert len(str(raised.value)) < 5_000


FIELDS = [field for _, field in DECLARED.values()]
TEXTS = {
    "much": "A" * 1_000_000, "digits": "9" * 1_000_000, "commas": "," * 100_000, "slashes": "/" * 5_000,
    "braces": '{"t":' * 50_000, "topics": "{" + ",".join(f'"t{n}": {{"0": 1}}' for n in range(1_000)) + "}",
    "url": "https://" + "a" * 100_000, "class": "m" * 100_000 + ":C", "dots": "..a:C", "nul": "a\0b:C",
    "escapes": EVIL, "half a character": "a\udc80b", "beyond all": "," * (LONGEST_TEXT + 1),
}  # fmt: skip


def problem_with(given):
    try:
        Options.parse(given)
    except OptionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("option", [field.metadata["name"] for field in FIELDS])
def test_every_option_takes_a_hostile_text_or_says_in_one_sentence_what_is_wrong_with_it(option):
    for text in TEXTS.values():
        given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "kafka.group.id": "g"}
        if option in ("subscribePattern", "assign"):
            del given["subscribe"]
        if option.startswith("kafka.s"):
            given |= {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
        result = problem_with(given | {option: text})
        assert len(result) < 5_000
        assert result.isprintable()
        assert "codec" not in result


def test_a_name_that_brokers_get_has_an_end():
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}
    for option in ("kafka.group.id", "groupIdPrefix", "kafka.client.id"):
        Options.parse(given | {option: "\xfc" * 16_000})
        with pytest.raises(OptionError, match=f"^{option} .* must have at most 32000 bytes$"):
            Options.parse(given | {option: "\xfc" * 16_001})


@pytest.mark.parametrize("number", ["1_0", "\uff11\uff12", "0x1", "1.0", "\xb2", "+"])
def test_a_number_is_written_as_kafka_reads_it(number):
    with pytest.raises(OptionError, match=r"^maxTasks \(.*\) must be a whole number$"):
        Options.parse({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "maxTasks": number})


def test_values_are_text_as_spark_makes_it():
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}
    given |= {"maxTasks": 3, "failOnDataLoss": False, "eventLog": Path("/tmp/events")}
    reading = Options.parse(given).reading
    assert (reading.max_tasks, reading.fail_on_data_loss, reading.event_log) == (3, False, "/tmp/events")
    with pytest.raises(OptionError, match="^maxTasks is None: give it a value, or leave it out$"):
        Options.parse(given | {"maxTasks": None})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kafka." + "x" * 1_000_000, "is not known: no option has so long a name"),
        ("kafka.ssl.key.pasword=hush-7f3a", "^option kafka.ssl.key.pasword is not known; the nearest is kafka"),
        ("-----BEGIN PRIVATE KEY-----\nhush-7f3a", "option without a name is not known"),
    ],
)  # fmt: skip
def test_an_options_name_is_shown_as_far_as_it_is_one(name, message):
    with pytest.raises(OptionError, match=message) as raised:
        Options.parse({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", name: "x"})
    assert len(str(raised.value)) < 5_000
    assert "hush-7f3a" not in str(raised.value)


def test_a_pause_file_that_is_a_device_is_a_warning(caplog):
    assert PausedPartitions(frozenset(), "/dev/zero").partitions() == frozenset()
    assert "pauseFile (/dev/zero) cannot be read: it is neither a file nor a pipe" in caplog.text


@hostile
def test_a_pause_file_that_cannot_be_read_is_a_warning_and_what_it_said_stays(tmp_path, caplog, text):
    file = tmp_path / "pause.json"
    paused = PausedPartitions(frozenset(), str(file))
    file.write_text('{"t": [1]}')
    assert paused.partitions() == {TopicPartition("t", 1)}
    file.write_text(text)
    assert paused.partitions() == {TopicPartition("t", 1)}
    assert "pauseFile" in caplog.text
    assert "these partitions stay paused: t-1" in caplog.text


@hostile
def test_a_line_of_an_event_log_is_no_event(tmp_path, capsys, text):
    file = tmp_path / "events"
    file.write_text(f'{{"time_ms": 1, "event": "committed", "group": "g", "member": "m", "generation": 1, "batch": 1, '
                    f'"offsets": {text}}}\n')  # fmt: skip
    assert main(["verify", str(file)]) == 1
    assert f"{file}:1: not an event: " in capsys.readouterr().err


@hostile
def test_a_checkpoint_with_offsets_that_cannot_be_is_an_error_of_the_tool(tmp_path, capsys, text):
    (tmp_path / "offsets").mkdir()
    reader = '"@group": {"reader": "r", "generation": 1}'
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{text[:-1] or '{'}, {reader}}}\n")
    assert main(["describe", "--bootstrap-server", "localhost:1", "--group", "g", "--checkpoint", str(tmp_path)]) == 1
    assert "batch 0 cannot be read: " in capsys.readouterr().err


def test_a_checkpoint_that_is_no_text_is_an_error_of_the_tool(tmp_path, capsys):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_bytes(b"\xff@group")
    assert main(["describe", "--bootstrap-server", "localhost:1", "--group", "g", "--checkpoint", str(tmp_path)]) == 1
    assert "batch 0 cannot be read: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "obj",
    [
        {"t": {"0": 2**63}},
        {"t": {"0": 10**300}},
        {"t": {"2147483648": 1}},
        {"t": {LONG: 1}},
        {"@group": {"reader": "r", "generation": 1, "epochs": {"t": {"0": 10**300}}}},
    ],
)
def test_an_offset_of_a_checkpoint_that_kafka_cannot_have_is_an_error(obj):
    with pytest.raises(OffsetFormatError, match="checkpoint") as raised:
        GroupOffset.from_json(obj)
    assert len(str(raised.value)) < 1_000


def test_an_offset_of_a_checkpoint_that_is_nested_is_an_error():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    for obj in (nested, {"t": nested}, {"t": {"0": nested}}, {"@group": nested}, {"@group": {"version": nested}}):
        with pytest.raises(OffsetFormatError, match="checkpoint"):
            GroupOffset.from_json(obj)


@pytest.mark.parametrize(
    "note",
    [
        DEEP,
        NESTED,
        f'{{"reader": "r", "generation": {LONG}}}',
        '{"reader": "r", "generation": 1, "since": {"q": [1e999]}}',
        '{"reader": "r", "generation": NaN}',
    ],
    ids=range(5),
)
def test_metadata_of_another_programs_commit_is_no_note(note):
    assert writer_of(note) is None


def test_json_as_everybody_writes_it_is_read():
    value = {"a": [1, -2, 1.5, None, True, "x"], "b": {"c": {"d": [[[]]]}}, "e": 2**63 - 1}
    assert parsed(json.dumps(value)) == parsed(json.dumps(value).encode()) == value


@pytest.mark.parametrize("pattern", ["(" * 50_000, "(?:" * 2_000 + ")" * 2_000, "a{99999999999999999999}"])
def test_a_pattern_that_python_cannot_take_is_an_error_of_its_option(pattern):
    with pytest.raises(OptionError, match=r"subscribePattern \(.*is (not )?a regular expression"):
        Options.parse({"kafka.bootstrap.servers": "localhost:1", "subscribePattern": pattern})


@pytest.mark.parametrize("option", ["maxTriggerDelay", "maxOffsetsPerTrigger", "startingTimestamp", "retryTopics"])
def test_a_number_of_thousands_of_digits_is_an_error_of_its_option(option):
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "minOffsetsPerTrigger": "1", option: LONG}
    with pytest.raises(OptionError, match=rf"^{option} \(9+\.\.\.9+\) (must|is|has)"):
        Options.parse(given)


@pytest.mark.parametrize("argument", ["--to-offset", "--shift-by"])
def test_a_number_of_thousands_of_digits_is_a_wrong_argument(argument, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["reset", "--bootstrap-server", "localhost:1", "--group", "g", "--topic", "t", argument, LONG])
    assert "must be a whole number" in capsys.readouterr().err


def test_a_partition_number_is_the_same_in_every_script():
    with pytest.raises(ValueError, match="not a partition number"):
        parsing.offsets("startingOffsets", "earliest")('{"t": {"٣": 1}}')


# Files


@pytest.mark.parametrize("reader", ["../../../mine", "/tmp/mine", "a/b", "x" * 5_000, "\ud800", "\0", ""])
def test_a_reader_id_that_is_a_path_names_no_file_elsewhere(tmp_path, caplog, reader):
    directory = tmp_path / "one" / "two"
    directory.mkdir(parents=True)
    mine = tmp_path / "one" / "mine.json"
    mine.write_text("mine")
    one = OtherSources(directory, "group", reader, Subscription(topics=frozenset({"t"})))
    other = OtherSources(directory, "group", "5f0c" * 8, Subscription(topics=frozenset({"u"})))
    try:
        assert one.any()
        assert other.apart() == {reader}
        assert mine.read_text() == "mine"
        (folder,) = (directory / READERS_FOLDER).iterdir()
        assert len(list(folder.iterdir())) == 2
    finally:
        one.close()
        other.close()
    assert mine.read_text() == "mine"
    assert not list(folder.iterdir())
    assert caplog.records == []


# Modules


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes a module of this text and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def make(text):
        made.append(f"hostile_{tmp_path.name.replace('-', '_')}_{len(made)}")
        (tmp_path / f"{made[-1]}.py").write_text(text)
        return made[-1]

    yield make
    for name in made:
        sys.modules.pop(name, None)


ENDS = {
    "exits": "import sys; sys.exit('that is all')",
    "cancels": "import asyncio; raise asyncio.CancelledError",
    "raises": "raise BaseException('oops')",
}


@pytest.mark.parametrize("option", ["rebalanceListener", "interceptors", "kafka.partition.assignment.strategy"])
@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
def test_a_module_that_ends_the_program_is_an_error_of_its_option(module, option, text):
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", option: f"{module(text)}:Mine"}
    with pytest.raises(OptionError, match=f"{option} .* could not be imported: (SystemExit|Cancelled|BaseException)"):
        Options.parse(given)


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
def test_a_class_that_ends_the_program_is_an_error_of_its_option(module, text):
    named = module(f"class Mine:\n  def __init__(self):\n    {text}\n  on_commit = print\n")
    with pytest.raises(OptionError, match="interceptors .* could not be made: (SystemExit|Cancelled|BaseException)"):
        user_classes.make("interceptors", f"{named}:Mine", (), ("on_commit",))


@pytest.mark.parametrize("ending", ["KeyboardInterrupt", "user_classes.Terminated(143)"])
def test_ctrl_c_and_sparks_sigterm_are_no_errors_of_a_module(module, ending):
    named = module(f"from spark_kafka_group.values import user_classes\nraise {ending}")
    with pytest.raises((KeyboardInterrupt, user_classes.Terminated)):
        user_classes.load_class("interceptors", f"{named}:Mine", ())


def test_a_hook_that_ends_the_program_is_an_error_in_the_log(module, caplog):
    named = module("import sys\nclass Mine:\n  def on_commit(self, offsets, error):\n    sys.exit(3)\n")
    metrics = Metrics()
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "interceptors": f"{named}:Mine"}
    Hooks(Options.parse(given), metrics).committed({}, None)
    assert metrics.hook_errors == 1
    assert "Mine.on_commit of your own code raised an error; the query goes on" in caplog.text


# Terminals


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("Ünïcode и 日本語 🎉", "Ünïcode и 日本語 🎉"),
        (EVIL, SHOWN),
        ("\x9b31m", r"\x9b31m"),
        ("\ud800", r"\ud800"),
        ("\u2066\u2028\u200f", r"\u2066\u2028\u200f"),
        (SHOWN, SHOWN),
    ],
)
def test_control_characters_are_shown_escaped(text, shown):
    assert printable(text) == shown
    assert printable(printable(text)) == shown


def test_errors_and_partitions_show_names_of_others_escaped_and_keep_them():
    error = pickle.loads(pickle.dumps(BrokerError(f"leader {EVIL}")))
    assert str(error) == f"leader {SHOWN}"
    assert error.args == (f"leader {EVIL}",)
    assert str(ReadError(EVIL, 0, 5, "gone")) == f"{SHOWN}-0: offset 5: gone"
    assert str(OffsetRange(TopicPartition(EVIL, 0), 1, 2)) == f"{SHOWN}-0[1,2)"
    assert TopicPartition(EVIL, 0).topic == EVIL


def event(**more):
    return json.dumps({"time_ms": 1, "event": "assigned", "group": EVIL, "member": EVIL, "generation": 1} | more)


def test_verify_shows_names_in_events_escaped_and_its_json_has_them_as_they_are(tmp_path, capsys):
    file = tmp_path / "events"
    committed = event(event="committed", batch=1, offsets={EVIL: {"0": 5}})
    file.write_text(f"{event(partitions={EVIL: [0]})}\n{committed}\n")
    assert main(["verify", str(file)]) == 3
    shown = capsys.readouterr().out
    assert f"{SHOWN} committed {SHOWN}-0=5" in shown
    assert all(line.isprintable() for line in shown.splitlines())
    assert main(["verify", "--json", str(file)]) == 3
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert EVIL in lines[0]["problem"]
    file.write_text(event(event=EVIL) + "\n")
    assert main(["verify", str(file)]) == 1
    assert capsys.readouterr().err.rstrip("\n").isprintable()
    assert event_logs.parse(event(partitions={EVIL: [0]})).partitions == {TopicPartition(EVIL, 0)}


def test_records_of_the_offsets_topic_are_shown_escaped_and_as_json_as_they_are():
    member = decoding.StoredMember(EVIL, EVIL, EVIL, EVIL, 1, 1, b"", b"")
    entries = [
        decoding.GenerationEntry(EVIL, EVIL, 1, EVIL, EVIL, None, (member,)),
        decoding.OffsetRemoved(EVIL, TopicPartition(EVIL, 0)),
        decoding.Undecodable(EVIL, EVIL),
        newer.NewerGroupMember(EVIL, EVIL, EVIL, EVIL, EVIL, EVIL, (EVIL,), EVIL, 1, EVIL, 1, (EVIL,)),
        newer.GroupTopics(EVIL, ((EVIL, 1),)),
        newer.TargetAssignment(EVIL, EVIL, ((EVIL, (0,)),)),
        newer.CurrentAssignment(EVIL, EVIL, 1, 0, "stable", (("id", (0,)),), ((EVIL, (0,)),)),
        newer.PatternTopics(EVIL, EVIL, (EVIL,)),
        newer.NewerRecordRemoved(EVIL, 5, EVIL),
    ]
    for entry in entries:
        written = WrittenRecord(LogRecord(1, 2, b"", b""), entry)
        line = as_line(written, lambda: {"id": EVIL})
        assert SHOWN in line
        assert line.isprintable()
        assert json.loads(json.dumps(as_json(written, lambda: {"id": EVIL})))["group"] == EVIL


def test_describe_shows_names_escaped_and_its_json_has_them_as_they_are():
    member = DescribedMember(EVIL, EVIL, EVIL, EVIL, frozenset([TopicPartition(EVIL, 0)]))
    row = describe.PartitionRow(TopicPartition(EVIL, 0), 1, 2, 1, 0.5, None, member, None)
    report = describe.GroupReport(EVIL, EVIL, BrokerNode(1, EVIL, 2), 1, EVIL, (member,), (row,))
    shown = describe.as_text(report)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.count(SHOWN) == 11
    group, first, partition = map(json.loads, describe.of_one_group(report).as_json().splitlines())
    assert (group["state"], first["client_id"], partition["consumer_id"]) == (EVIL, EVIL, EVIL)


def test_log_lines_of_the_tools_steer_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    with pytest.raises(SystemExit):
        main(["describe"])
    logging.getLogger("spark_kafka_group.x").warning("no broker: %s", EVIL)
    assert f"no broker: {SHOWN}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("\udcff", "must be text in the terminal's encoding"),
        ("a" * 40_000, "at most 32000 bytes"),
        ("", "not be empty"),
    ],
)
def test_a_group_that_no_broker_can_have_is_an_argument_that_is_wrong(capsys, group, message):
    for command in ("describe", "offsets"):
        with pytest.raises(SystemExit):
            main([command, "--bootstrap-server", "localhost:1", "--group", group])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_of_a_broker_is_one_that_there_can_be(port):
    with pytest.raises(OptionError, match="must have ports between 1 and 65535; that of 'b:"):
        Options.parse({"kafka.bootstrap.servers": f"a:1,b:{port}", "subscribe": "t"})


def test_objects_for_a_schema_are_neither_deep_nor_have_a_key_twice():
    values = [
        b'{"a": 1, "b": {"c": 1.10, "c": 2}, "a": [3]}',
        b'{"a": 1.10}',
        NESTED.encode(),
        DEEP.encode(),
        b"[1]",
        None,
    ]
    deep = b'{"a":' * 100 + b"1" + b"}" * 100
    assert json_objects([*values, deep, b"\xff", LONG.encode()]) == ['{"a": [3], "b": {"c": 2}}', '{"a": 1.10}']
