"""The notebooks of notebooks/, each in a kernel of its own, on the broker of the tests; what they leave is nothing."""

import ast
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
import run_notebooks
from jupyter_client.manager import start_new_kernel
from support import members
from support.registries import Apicurio

from spark_kafka_group.testing import wait_until

STATEMENT_WITHIN_S = 180
QUICKER = {"SECONDS = 8": "SECONDS = 2"}
AT_ONCE = {'"maxOffsetsPerTrigger": "600"': '"maxOffsetsPerTrigger": "10000"'}
"""What makes notebooks quicker; with the second, a query that joins finds nothing to read."""


@pytest.fixture
def environment(kafka, monkeypatch, tmp_path):
    """Of kernels: the broker of the tests, and folders that are only theirs."""
    for name in ("tmp", "runtime", "ipython", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return tmp_path


@contextmanager
def nothing_stays(kafka, environment):
    """Topics, groups, processes and folders of the block are gone when it has ended."""

    def there():
        topics, groups = kafka.admin.list_topics(), kafka.admin.list_groups()
        processes = {found.pid for found in descendants(os.getpid())}
        return {*topics, *(group["group_id"] for group in groups), *processes, "__consumer_offsets"}

    before = there()
    yield
    wait_until(lambda: there() <= before, within=60)
    wait_until(lambda: not list((environment / "tmp").glob("spark-kafka-group*")), within=60)


class Process:
    """A process; its number may be another's later."""

    def __init__(self, pid):
        self.pid = pid
        self._started = self._start()

    @property
    def alive(self):
        return self._start() == self._started

    def _start(self):
        try:
            return fields(self.pid)[19]
        except OSError:
            return None


def fields(pid):
    """Those of /proc/pid/stat behind the name: state, parent, ..., start."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def descendants(pid):
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = fields(folder.name)[:2]
        except OSError:
            continue
        if state != "Z":
            parents.setdefault(int(parent), []).append(int(folder.name))
    found, below = [], [pid]
    while below:
        children = parents.get(below.pop(), [])
        found += map(Process, children)
        below += children
    return found


def notebook(number):
    (file,) = run_notebooks.NOTEBOOKS.glob(f"{number}-*.ipynb")
    return nbformat.read(file, as_version=4)


def shortened(book, by=QUICKER):
    for cell in book.cells:
        for slow, quick in by.items():
            cell.source = cell.source.replace(slow, quick)
    return book


def texts(book):
    """What each cell shows as text, by the cell's id."""
    return {cell.id: "\n".join(map(text, cell.outputs)) for cell in book.cells if cell.cell_type == "code"}


def text(output):
    return output.text if output.output_type == "stream" else output.data["text/plain"]


def members_in(lag):
    """The end of the member of each partition, in the text of a lag, which may cut the middle."""
    return re.findall(r"^orders.*(\w{5})  \S+$", lag, re.MULTILINE)


def pictures(book):
    return [
        cell.id for cell in book.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", ())
    ]


@pytest.fixture
def shown(kafka, environment):
    """Run a notebook; returns its texts, and which cells have pictures."""

    def run(number):
        book = shortened(notebook(number))
        with nothing_stays(kafka, environment):
            run_notebooks.settled(run_notebooks.run(book, environment / "work"))
        assert list((environment / "work").iterdir()) == []
        return texts(book), pictures(book)

    return run


@pytest.mark.soak
def test_exploring_a_topic(shown):
    outputs, drawn = shown(1)
    assert re.search(r"^1 topic, 2,000 records\n.*\norders-.* 4 +2,000 .* gzip", outputs["topics"])
    assert outputs["look"].startswith("2 messages\norders-")
    assert '"order": 1999' in outputs["look"]
    assert outputs["look-at"].count("2026-01-05 12:0") == 2
    assert re.search(r"orders-\w+: 2,000 records\nstart +records +/s\n(2026-01-05 .*\n?){12}$", outputs["rate"])
    assert outputs["lag-records"] == "2,000 records read\n"
    assert re.search(r"^group billing-\w+: Empty, 4 records behind\n", outputs["lag"])
    assert "a tombstone" in outputs["odd"]
    assert "|-- amount: double (nullable = true)" in outputs["schema"]
    assert len(re.findall(r"^\|customer \d+\| +\d+\|[\d.]+\|$", outputs["from-json"], re.MULTILINE)) == 5
    assert drawn == ["picture"]


@pytest.mark.soak
def test_queries_that_share_a_group_are_watched_stopped_and_started_again(shown):
    outputs, drawn = shown(2)
    percent, full = re.search(r"^first: +(\d+)%\|(█+) *\|", outputs["watch"]).groups()
    assert abs(int(percent) / 5 - len(full)) <= 1  # of 20
    assert outputs["watch-second"].startswith("second: ")
    for cell in ("watch", "watch-second"):
        assert "the view has ended; the query goes on" in outputs[cell]
    shared, alone = (members_in(outputs[cell]) for cell in ("share", "leave"))
    assert len({*shared}) == 2
    assert len(shared) == len(alone) == 4
    assert {*alone} < {*shared}
    read = ast.literal_eval(outputs["catch-up"])
    assert read["first"] + read["second"] == 20_000
    assert read["second"] > 0
    assert "Stable, 0 records behind" in outputs["leave"]
    assert "Empty, 0 records behind" in outputs["stop"]
    assert "Empty, 2,400 records behind" in outputs["meanwhile"]
    assert re.search(r"^first: 100%\|█+\| 2.40k/2.40k \[.*, lag 0\]$", outputs["restart"], re.MULTILINE)
    assert re.search(r", 0 records behind\n.*\n(orders.* [0-9a-f]+…[0-9a-f]+:\d+\n?){4}$", outputs["lag"])
    assert "|  22400| 22400|" in outputs["count"]
    assert drawn == ["picture-lag", "picture-durations", "picture-overview"]


@pytest.mark.soak
def test_batches_of_a_group(shown):
    outputs, drawn = shown(3)
    runs = [outputs[cell] for cell in ("bill", "again", "more", "error-again")]
    assert [re.search(r"^generation \d+: (.*) records$", run, re.MULTILINE)[1] for run in runs] == [
        "3,000", "0", "1,500", "600",
    ]  # fmt: skip
    assert re.search(r"^group billing-\w+: 100%\|█+\| 3.00k/3.00k \[", outputs["bill"])
    assert "no new records]" in outputs["again"]
    assert "the disk is full: 600 records are still to be read" in outputs["error"]
    assert "Empty, 600 records behind" in outputs["error"]
    assert re.search(r"\| +5100\| +5100\|", outputs["count"])
    assert drawn == ["picture"]


@pytest.mark.soak
def test_retries_and_dead_letters(shown):
    outputs, drawn = shown(4)
    assert outputs["first"] == "Counts(records=300, done=280, retried=20, dead=0)"
    assert re.search(r"^3 topics, 320 records\n", outputs["retry-look"])
    assert "'__connect.errors.exception.class.name'" in outputs["retry-headers"]
    assert outputs["second"] == "Counts(records=20, done=10, retried=0, dead=10)"
    assert "|ValueError|unknown currency XXX|10   |" in outputs["dead"]
    assert re.search(r"outcome='wanted', records=10\)\]$", outputs["survey"])
    assert outputs["send-back"] == outputs["survey"]
    assert outputs["mended"] == "Counts(records=10, done=10, retried=0, dead=0)"
    assert re.search(r", 0 records behind\n.*\n(payments.*\n?){6}$", outputs["lag"])
    assert drawn == ["picture"]


@pytest.mark.soak
def test_avro_from_a_registry(shown, monkeypatch):
    with Apicurio() as registry:
        monkeypatch.setenv("SCHEMA_REGISTRY_URL", registry.url)
        outputs, drawn = shown(5)
        assert registry.ask("/subjects") == []
    assert '"celsius": ' in outputs["look"]
    assert outputs["look"].count('"room": "') == 2
    assert "|    |-- at: timestamp (nullable = true)" in outputs["columns"]
    assert re.search(r"^\|2026-01-05 00:00:00\|attic +\|\{[\d.]+, NULL\} *\|\d+ *\|$", outputs["columns"], re.MULTILINE)
    assert re.findall(r"^\|(2026-\S+)\| +(\S+)\| +(\d+)\|$", outputs["more"], re.MULTILINE) == [
        ("2026-01-05", "NULL", "864"), ("2026-01-06", "80", "864"),
    ]  # fmt: skip
    assert re.findall(r"^\| +(\S+)\|(.+)\|$", outputs["broken"], re.MULTILINE)[-1] == ("NULL", "11 degrees")
    assert drawn == ["picture"]


@pytest.mark.soak
def test_changes_as_columns(shown, monkeypatch):
    with Apicurio() as registry:
        monkeypatch.setenv("SCHEMA_REGISTRY_URL", registry.url)
        outputs, _ = shown(6)
        assert registry.ask("/subjects") == []
    assert outputs["other"].splitlines()[-3:] == [
        "4 None",
        "5 {'op': 'c', 'after': {'id': 5, 'state': 'NEW', 'amount': 50.0}}",
        "5 {'op': 'u', 'after': {'id': 5, 'state': 'SENT', 'amount': 55.0}}",
    ]
    rows = {cell: re.findall(r"^\| +(\d)\| *(\w+)\|", outputs[cell], re.MULTILINE) for cell in ("table", "misfit")}
    assert rows["table"] == [("1", "NEW"), ("2", "PAID"), ("3", "NEW"), ("5", "SENT")]
    assert rows["misfit"] == [("1", "NEW"), ("3", "NEW")]
    assert "column value, field after.state: 'LOST' is no symbol of the schema's enum State" in outputs["misfit"]


class Kernel:
    """A kernel of Jupyter's, and the cells of a notebook."""

    def __init__(self, book, directory):
        self._cells = {cell.id: cell.source for cell in book.cells}
        self.manager, self._client = start_new_kernel(kernel_name="python3", cwd=str(directory))

    def run(self, *cells):
        for cell in cells:
            shown = self.execute(self._cells[cell])
        return shown

    def execute(self, code, meanwhile=lambda: None):
        """What it prints; `meanwhile` runs when it has drawn something."""
        printed = []

        def keep(message):
            if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
                printed.append(message["content"]["text"])
            if message["msg_type"] == "display_data":
                meanwhile()

        answer = self._client.execute_interactive(code, timeout=STATEMENT_WITHIN_S, output_hook=keep)["content"]
        assert answer["status"] == "ok", "\n".join(answer["traceback"])
        return "".join(printed)

    def restart(self):
        """As the button of Jupyter does."""
        self.manager.restart_kernel()
        self._client.wait_for_ready(timeout=60)

    def kill(self):
        self.manager.shutdown_kernel(now=True)
        self._client.stop_channels()


@pytest.fixture
def kernel(environment):
    made = Kernel(shortened(notebook(2), QUICKER | AT_ONCE), environment / "work")
    yield made
    made.kill()


@pytest.mark.timeout(900)
@pytest.mark.soak
def test_cells_that_run_again_kernels_that_restart_and_kernels_that_die_while_a_query_runs(kafka, kernel, environment):
    def started():
        """The group of the query, whose member is there, and the processes of the kernel."""
        kernel.run("setup", "records", "query", "start")
        group = kernel.execute("print(options['kafka.group.id'])").strip()
        wait_until(lambda: members(kafka, group), within=60)
        return group, descendants(kernel.manager.provisioner.pid)

    def gone(group, processes):
        assert len(processes) >= 3  # the JVM, the reader, a worker
        wait_until(lambda: not any(process.alive for process in processes), within=60)
        wait_until(lambda: not members(kafka, group), within=225)  # a reader that is killed: its session takes 45 s

    group, processes = started()
    assert kernel.run("start", "start") == ""
    assert kernel.execute("print(len(spark.streams.active), first.isActive)") == "1 True\n"
    interrupted = kernel.execute(
        "from spark_kafka_group.live import watch\nwatch(first)", lambda: kernel.manager.interrupt_kernel()
    )
    assert interrupted.endswith("the view has ended; the query goes on: query.stop() stops it\n")
    assert "goes on" in kernel.run("watch")
    assert "goes on" in kernel.run("watch")
    assert kernel.execute("first.processAllAvailable(); print(first.isActive)") == "True\n"
    kernel.execute("from spark_kafka_group import GroupKafkaListener\nlistener = GroupKafkaListener(spark).attach()")
    kernel.execute("listener.attach()")
    kernel.execute("listener.close()\nlistener = GroupKafkaListener(spark).attach()")
    kernel.restart()
    gone(group, processes)
    group, processes = started()
    kernel.kill()
    gone(group, processes)
    for topic in kafka.admin.list_topics():  # a kernel that is killed, here or by Jupyter after 5 s, deletes nothing
        if topic.startswith("orders-"):
            kafka.delete_topic(topic)
