"""``top`` and ``describe --watch``: in place on a terminal, elsewhere as lines; brokers see a look from outside."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios

import pytest
from support import commit_for, committed, members, numbered, produce, topic_with

from spark_kafka_group.__main__ import main
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.commit_metadata import commit_metadata

LEAVE = "\x1b[?1049l"
SEQUENCE = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")
WITHIN_S = 60


class OnTerminal:
    """The command on a terminal of its own."""

    def __init__(self, kafka, *arguments, command=("top", "--interval"), size=(24, 80), stderr=None):
        self.master, self.slave = pty.openpty()
        self.ends_of_the_terminal = [self.slave, self.master]
        self.resize(*size)
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        called = [sys.executable, "-m", "spark_kafka_group", *command, "0.2"]
        self.process = subprocess.Popen(
            [*called, "--bootstrap-server", kafka.bootstrap_servers, *arguments], stdin=self.slave, stdout=self.slave,
            stderr=stderr or self.slave, env=os.environ | {"TERM": "xterm"}, preexec_fn=self._lead,
        )  # fmt: skip

    def _lead(self):
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)  # or it would get no signal of a new size, or of Ctrl-C

    def resize(self, lines, columns):
        self.size = (lines, columns)
        termios.tcsetwinsize(self.slave, self.size)

    def hit(self, keys):
        os.write(self.master, keys.encode())

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65_536).decode()

    def screen(self):
        """Lines of the newest whole drawing: another one has begun."""
        self.read()
        whole = self.text.split("\x1b[H")[1:-1]
        return [SEQUENCE.sub("", line) for line in whole[-1].splitlines()] if whole else []

    def shows(self, text):
        wait_until(lambda: any(text in line for line in self.screen()), within=WITHIN_S)
        return self.screen()

    def ends(self):
        code = self.process.wait(WITHIN_S)
        self.read()
        return code

    def was_left(self):
        """Whether the terminal is as it was before."""
        return self.text.endswith(LEAVE) and termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()

    def hang_up(self):
        """As when the window is closed, or the connection to the host is lost."""
        while self.ends_of_the_terminal:
            os.close(self.ends_of_the_terminal.pop())


@pytest.fixture
def top_of():
    """Starts the command on terminals, and ends it."""
    made = []

    def make(kafka, *arguments, **more):
        made.append(OnTerminal(kafka, *arguments, **more))
        return made[-1]

    yield make
    for terminal in made:
        terminal.close()


@pytest.fixture
def topic(kafka):
    return topic_with(kafka, numbered(30, 3))


@pytest.fixture
def ctrl_c_as_before():
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def rows_of(screen, prefix):
    return [line.split() for line in screen if line.startswith(prefix)]


def test_the_screen_follows_keys_and_size_and_q_leaves_the_terminal_as_it_was(kafka, topic, group, top_of):
    first, second = f"{group}-a", f"{group}-b"
    commit_for(kafka, first, {(topic, 0): 9})
    commit_for(kafka, second, {(topic, 0): 1}, commit_metadata("reader-7", 3, 5))
    top = top_of(kafka, "--sort", "group")
    top.shows("by group")
    top.resize(3000, 200)  # the broker has the groups of other tests, too
    top.shows(f"{second}  ")
    assert [row[0] for row in rows_of(top.screen(), group)] == [first, second]
    top.hit("l")
    screen = top.shows("by lag")
    assert [row[0] for row in rows_of(screen, group)] == [second, first]
    (row, _) = rows_of(screen, group)
    assert (row[1:4], row[-1]) == (["Empty", "0", "9"], "reader-7")
    top.resize(8, 40)
    wait_until(lambda: len(top.screen()) <= 8 and max(map(len, top.screen())) <= 40, within=WITHIN_S)
    top.hit("q")
    assert top.ends() == 0
    assert top.was_left()
    assert (members(kafka, first), committed(kafka, first)) == ([], {(topic, 0): 9})


@pytest.mark.parametrize(("asked", "code"), [("\x03", 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_ctrl_c_and_sigterm_leave_the_terminal_as_it_was(kafka, topic, group, top_of, asked, code):
    commit_for(kafka, group, {(topic, 0): 9})
    top = top_of(kafka, "--group", group)
    top.shows(group)
    if isinstance(asked, str):
        top.hit(asked)
    else:
        top.process.send_signal(asked)
    assert top.ends() == code
    assert top.was_left()


def test_a_watched_group_is_drawn_in_place_and_moved_by_keys(kafka, topic, group, top_of):
    commit_for(kafka, group, {(topic, 0): 1})
    watched = top_of(kafka, "--group", group, command=("describe", "--watch"))
    first, keys, problem, *_ = watched.shows(f"group {group}: Empty")
    assert (group in first, "9 behind" in first, problem) == (True, True, "")
    assert keys.endswith(" lines, every 0.2 s  (arrows  q quit)")
    commit_for(kafka, group, {(topic, 0): 3})
    watched.shows("7 behind")
    watched.resize(6, 80)
    watched.shows("lines 1-3 of ")
    watched.hit("\x1b[B")
    watched.shows("lines 2-4 of ")
    watched.hit("\x03")
    assert watched.ends() == 130
    assert watched.was_left()


def test_a_terminal_that_goes_away_ends_the_view_without_a_traceback(kafka, topic, group, top_of, tmp_path):
    commit_for(kafka, group, {(topic, 0): 9})
    with (tmp_path / "stderr").open("w") as stderr:
        top = top_of(kafka, "--group", group, stderr=stderr)
    top.shows(group)
    top.hang_up()
    assert top.process.wait(WITHIN_S) == -signal.SIGHUP
    assert (tmp_path / "stderr").read_text() == ""


def test_the_view_goes_on_while_the_broker_does_not_answer(kafka, topic, group, top_of):
    commit_for(kafka, group, {(topic, 0): 9})
    top = top_of(kafka, "--group", group)
    top.shows(topic)
    broker = kafka.nodes[0].process
    try:
        broker.send_signal(signal.SIGSTOP)
        assert topic in str(top.shows("no broker has answered"))
        broker.send_signal(signal.SIGCONT)
        wait_until(lambda: "no broker" not in str(top.screen()), within=WITHIN_S)
        broker.send_signal(signal.SIGSTOP)
        top.shows("no broker has answered")
        top.hit("q")
        assert top.ends() == 0
    finally:
        broker.send_signal(signal.SIGCONT)
    assert top.was_left()


def test_through_a_pipe_each_interval_has_its_rates(kafka, topic, group):
    commit_for(kafka, group, {(topic, 0): 1})
    command = [sys.executable, "-m", "spark_kafka_group", "top", "--bootstrap-server", kafka.bootstrap_servers]
    with subprocess.Popen(
        [*command, "--group", group, "--interval", "0.2", "--json"], stdout=subprocess.PIPE, text=True
    ) as running:
        first = json.loads(running.stdout.readline())
        assert (first["lag"], first["committed_per_second"], first["produced_per_second"]) == (9, 0.0, 0.0)
        produce(kafka, topic, numbered(30, 3))
        commit_for(kafka, group, {(topic, 0): 20}, commit_metadata("reader-7", 3, 5))
        row = first
        while row["lag"] or not row["produced_per_second"]:
            row = json.loads(running.stdout.readline())
        assert row["committed_per_second"] > row["produced_per_second"] > 0
        assert (row["lag_seconds"], row["seconds_to_end"], row["reader"], row["batch"]) == (0.0, 0.0, "reader-7", 5)
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        assert running.wait(WITHIN_S) == 130


@pytest.mark.usefixtures("ctrl_c_as_before")
def test_once_prints_one_table_that_steers_no_terminal(kafka, topic, group, capsys):
    evil = f"{group}\x1b[2J\u202e"
    commit_for(kafka, evil, {(topic, 0): 1})
    arguments = ["top", "--bootstrap-server", kafka.bootstrap_servers, "--once", "--interval", "0.01"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert all(line.isprintable() for line in output.splitlines())
    assert rf"{group}\x1b[2J\u202e" in output
    assert output.count("COMMIT/S") == 1
    assert main([*arguments, "--group", f"{group}x"]) == 1
    assert "there is no group" in capsys.readouterr().err
