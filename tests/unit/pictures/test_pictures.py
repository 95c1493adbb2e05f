"""Pictures of runs and queries: what is drawn of a real run, of many partitions, and of hostile names.

logged_run/ is of `python -m faults.chaos --queries 3 --partitions 3 --kill`: files of three queries that come, go and
are killed, two of them cut short; progress.json is of a Spark query that had six partitions and then three.
"""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from support.source_tree import ROOT

from spark_kafka_group import pictures
from spark_kafka_group.__main__ import main
from spark_kafka_group.driver.reporting.events import EventLog
from spark_kafka_group.pictures import canvas, progress_samples
from spark_kafka_group.pictures.canvas import MOST_NAMED, THEMES, ids, label
from spark_kafka_group.pictures.logged_run import absences
from spark_kafka_group.pictures.owned_partitions import owned_spans
from spark_kafka_group.tools.event_logs import Event, parse, read_run
from spark_kafka_group.tools.verify import verify
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

RUN = sorted((Path(__file__).parent / "logged_run").glob("*.jsonl"))
PROGRESS = json.loads((Path(__file__).parent / "logged_run" / "progress.json").read_text())
T = [TopicPartition("orders", number) for number in range(300)]
EVIL = "$x^{$\x1b[2J\u202e_\\$" + "y" * 500


class Script:
    """Writes the files that queries write, a second between events."""

    def __init__(self, directory):
        self.directory = directory
        self.logs = {}
        self.seconds = 0

    def log(self, member, group="billing"):
        if member not in self.logs:
            file = self.directory / f"{len(self.files)}.jsonl"
            self.logs[member] = EventLog(str(file), group, member, self.clock)
        return self.logs[member]

    def clock(self):
        self.seconds += 1
        return 1_700_000_000.0 + self.seconds

    @property
    def files(self):
        return sorted(self.directory.glob("*.jsonl"))

    @property
    def events(self):
        return read_run(self.files).events


@pytest.fixture
def script(tmp_path):
    made = Script(tmp_path)
    yield made
    for log in made.logs.values():
        if log._file is not None:  # as of a query that is killed
            log._file.close()


def spans(events):
    """Seconds of each span since the epoch of the script."""
    seconds = [(s.member[1], s.tp.partition, s.from_ms, s.to_ms) for s in owned_spans(events)]
    return sorted((m, p, int(a / 1000) - 1_700_000_000, int(b / 1000) - 1_700_000_000) for m, p, a, b in seconds)


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def ticks(axis):
    """Texts at an axis that was drawn."""
    first, last = sorted(axis.get_view_interval())
    return [tick.get_text() for tick, at in zip(axis.get_ticklabels(), axis.get_ticklocs(), strict=True)
            if first <= at <= last]  # fmt: skip


def drawn(figure):
    """Lay it out, as a notebook does when it draws; warnings are errors in tests."""
    figure.draw_without_rendering()
    return figure


# Who owned which partition


def test_a_partition_that_is_given_back_has_no_owner_until_another_member_gets_it(script):
    script.log("a").assigned(1, T[:2])  # second 1
    script.log("a").revoked(1, T[1:2])
    script.log("a").assigned(2, T[:1])
    script.log("b").assigned(2, T[1:2])
    script.log("b").close(2)
    script.log("a").assigned(3, T[:2])  # second 6, which is the last
    assert spans(script.events) == [("a", 0, 1, 6), ("a", 1, 1, 2), ("a", 1, 6, 6), ("b", 1, 4, 5)]


def test_a_member_that_was_killed_owns_until_its_last_event(script):
    script.log("a").assigned(1, T[:1])
    script.log("a").planned(1, 0, [OffsetRange(T[0], 0, 5)], False)
    script.log("b").assigned(2, T[:2])  # second 3
    script.log("b").planned(2, 0, [OffsetRange(T[0], 0, 5)], False)
    assert spans(script.events) == [("a", 0, 1, 2), ("b", 0, 3, 4), ("b", 1, 3, 4)]
    (gone,) = absences(script.events)
    assert (gone.member, gone.to_ms) == (("billing", "a"), None)


@pytest.mark.parametrize("replayed", [True, False])
def test_a_member_that_was_killed_and_is_back_has_a_gap(script, replayed):
    script.log("a").assigned(1, T[:1])
    script.log("a").planned(1, 0, [OffsetRange(T[0], 0, 5)], False)  # second 2
    script.log("a").assigned(2, T[:1])
    if replayed:
        script.log("a").planned(2, 0, [OffsetRange(T[0], 0, 5)], True)
    else:
        script.log("a").moved(2, {T[0]: (5, 5, "the checkpoint")})
    assert spans(script.events) == [("a", 0, 1, 2), ("a", 0, 3, 4)]


def test_a_member_that_stopped_in_order_and_replays_was_not_killed(script):
    script.log("a").assigned(1, T[:1])
    script.log("a").planned(1, 0, [OffsetRange(T[0], 0, 5)], False)
    script.log("a").close(1)
    del script.logs["a"]
    script.log("a").assigned(2, T[:1])
    script.log("a").planned(2, 0, [OffsetRange(T[0], 0, 5)], True)
    assert absences(script.events) == ()


def test_a_real_run_has_a_bar_for_each_span_and_a_colour_for_each_member():
    figure = pictures.owners(RUN)
    (axes,) = figure.axes
    events = read_run(RUN).events
    members = list(dict.fromkeys(event.member for event in events))
    background, *bars = axes.containers
    assert len(background) == 3  # a row a partition
    assert sum(map(len, bars)) == len(owned_spans(events))
    assert [container.get_label() for container in bars] == members
    colours = {patch.get_facecolor() for container in bars for patch in container}
    assert len(colours) == len(members) == 4
    assert legend(axes) == [*(member[:8] for member in members), "generation", "no owner known"]
    assert axes.get_xlabel() == "time since 23:41:38 UTC (s)"
    assert axes.get_ylabel().startswith("partition\nof chaos-")
    assert figure.get_suptitle().startswith("group group-chaos-")
    assert figure.get_suptitle().endswith(": 2026-11-22 23:41:38 – 23:42:22 UTC")


def test_the_owners_of_three_hundred_partitions_are_cells_and_few_names(script):
    for generation in range(1, 100):
        for member in range(20):
            script.log(f"m{member:02d}").assigned(generation, T[(member + generation) % 20 :: 20])
    figure = pictures.owners(script.files, "dark")
    (axes,) = figure.axes
    (image,) = axes.images
    assert image.get_array().shape[:2] == (300, 1200)
    assert len(axes.patches) == 0
    assert len(legend(axes)) == MOST_NAMED + 2
    assert legend(axes)[MOST_NAMED] == "13 more, same colours"
    assert len(axes.get_yticks()) <= 20


@pytest.mark.parametrize("partitions", [1, 2, 6, 60, 300])
def test_bars_of_few_partitions_are_no_slabs_and_those_of_many_need_no_long_page(script, partitions):
    script.log("a").assigned(1, T[:partitions])
    script.log("a").planned(1, 0, [OffsetRange(T[0], 0, 5)], False)
    script.log("a").committed(1, 0, {T[0]: 5})
    figure = drawn(pictures.overview(script.files))
    owners, lanes, *_ = figure.axes
    heights = [bar.get_window_extent().height for bar in owners.patches]
    lane, *_ = lanes.collections[0].get_paths()
    heights += [lanes.transData.transform_path(lane).get_extents().height]
    assert max(heights) <= 0.45 * canvas.DPI
    assert 700 < figure.size_px[1] <= 1_550
    assert owners.get_window_extent().height >= owners.yaxis.label.get_window_extent().height


def test_partitions_of_many_topics_are_named_by_their_topics(script):
    script.log("a").assigned(1, [TopicPartition(f"topic-{n:03d}", 0) for n in range(300)])
    script.log("a").close(1)
    (axes,) = pictures.owners(script.files).axes
    assert [text.get_text() for text in axes.get_yticklabels()][:2] == ["topic-000", "topic-015"]
    assert axes.get_ylabel() == "partition of 300 topics"


# Batches and records


def test_the_batches_of_a_real_run_and_what_hit_them_are_drawn():
    lanes, below = pictures.batches(RUN).axes
    assert len(lanes.get_yticks()) == 4
    assert legend(lanes)[:2] == ["committed", "no commit event"]
    assert legend(lanes)[3:] == ["replay (3)", "ended without stop (2)"]
    points = sum(len(line.get_xdata()) for line in below.lines)
    commits = [event for event in read_run(RUN).events if event.kind == "committed"]
    assert points == len(commits) == 50
    assert below.get_ylabel() == "plan to commit (s)"


def test_the_records_of_a_real_run_are_those_that_verify_counts():
    totals, rates = pictures.records(RUN).axes
    report = verify(read_run(RUN).events, all_members=False)
    assert sum(line.get_ydata()[-1] for line in totals.lines) == report.records_committed > 0
    assert (totals.get_ylabel(), rates.get_ylabel()) == ("records", "records/s")


def test_many_rebalances_are_lines_all_along(script):
    for generation in range(2_000):
        script.log("a").assigned(generation, T[generation % 2 :][:1])
    lanes, _ = pictures.batches(script.files).axes
    places = [path.vertices[0][0] for path in lanes.collections[-1].get_paths()]
    assert 300 <= len(places) <= 351
    assert max(places) - min(places) > 0.99 * 2_000 / 60  # minutes
    assert legend(lanes)[-1] == "new owners (2000)"


def long_run(batches, members):
    """Events as they are in a file, of members that all own one partition."""
    for number in range(batches):
        member, start = f"m{number % members:03d}", 10 * (number // members)
        common = {"group": "g", "member": member, "generation": 1, "batch": number // members}
        ranges = {"t": {str(number % members): [start, start + 10]}}
        offsets = {"t": {str(number % members): start + 10}}
        yield {"time_ms": 100 * number, "event": "planned", **common, "ranges": ranges}
        yield {"time_ms": 100 * number + 70, "event": "committed", **common, "offsets": offsets}


def test_a_long_run_is_not_drawn_batch_by_batch(tmp_path):
    file = tmp_path / "long.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in long_run(4_000, 40)))
    figure = pictures.overview([file])
    _, lanes, durations, totals, rates = figure.axes
    assert len(lanes.get_yticks()) == 16
    assert sum(len(bars.get_paths()) for bars in lanes.collections) < 16 * 700
    assert max(len(line.get_xdata()) for line in durations.lines) <= 120
    assert legend(totals)[-1] == "33 more"
    assert max(len(line.get_xdata()) for line in totals.lines) <= 1_500
    assert sum(line.get_ydata()[-1] for line in totals.lines) == 40_000
    assert len(rates.collections) == MOST_NAMED + 1


def every_second(batches, pause_after):
    """Events of a member with 90 records a second; after the batch `pause_after` it pauses for 30 s."""
    for number in range(batches):
        ms = 1000 * number + (30_000 if number > pause_after else 0)
        common = {"group": "g", "member": "m", "generation": 1, "batch": number}
        ranges, offsets = {"t": {"0": [90 * number, 90 * number + 90]}}, {"t": {"0": 90 * number + 90}}
        yield {"time_ms": ms + 700, "event": "planned", **common, "ranges": ranges}
        yield {"time_ms": ms + 1_000, "event": "committed", **common, "offsets": offsets}


def rates_of(file):
    """At the middle of each bin."""
    *_, rates = pictures.records([file]).axes
    (area,) = rates.collections
    (path,) = area.get_paths()
    places = [(number + 0.5) / 60 * rates.get_xlim()[1] for number in range(60)]
    edges = [(*sorted((one[0], other[0])), other[1]) for one, other in pairwise(path.vertices)]
    return [max(height for left, right, height in edges if left < place < right) for place in places]


def test_steady_batches_have_a_steady_rate_however_long_bins_are(tmp_path):
    file = tmp_path / "steady.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in every_second(24, pause_after=24)))
    first, *others = rates_of(file)  # bins of 0.39 s; nobody knows when the work for the first commit began
    assert first > 90
    assert others == pytest.approx([90] * 59)


def test_the_first_batch_after_a_pause_has_its_records_since_its_plan(tmp_path):
    file = tmp_path / "paused.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in every_second(12, pause_after=5)))
    rates = rates_of(file)
    idle = [number for number, rate in enumerate(rates) if rate == 0]
    assert idle == list(range(idle[0], idle[-1] + 1))
    assert len(idle) == 44  # bins of 0.688 s; the pause and the 0.7 s until the plan are 30.7 s


# Progress


def with_partitions(count):
    """Progress of three micro-batches, of which partition n reads n + 1 records each."""
    offsets = [GroupOffset({tp: (tp.partition + 1) * n for tp in T[:count]}, "r", n, n) for n in range(4)]
    for number, (start, end) in enumerate(pairwise(offsets)):
        positions = {"orders": {str(tp.partition): offset for tp, offset in end.positions.items()}}
        ends = {"orders": {partition: offset + number for partition, offset in positions["orders"].items()}}
        latest = ends | {"@group": {"group": "billing", "positions": positions}}
        source = {"startOffset": start.to_json(), "endOffset": json.dumps(end.to_json()), "latestOffset": latest}
        yield {"sources": [source], "batchId": number, "timestamp": f"2026-11-22T10:00:0{number}.000Z",
               "durationMs": {"addBatch": 300, "walCommit": 50, "triggerExecution": 400}}  # fmt: skip


def test_lag_and_rate_of_a_real_query_have_a_line_for_each_partition():
    above, below = pictures.lag(PROGRESS).axes
    assert legend(above) == [f"orders-{number}" for number in range(6)]
    assert (len(above.lines), len(below.lines)) == (6, 6)
    assert (above.get_ylabel(), below.get_ylabel()) == ("lag (records)", "records/s")
    given_back = above.lines[5].get_ydata()
    assert given_back[0] == given_back[0]  # a number
    assert given_back[-1] != given_back[-1]  # not drawn where another member owned it


def test_lag_of_three_hundred_partitions_is_a_map():
    above, below, bar = pictures.lag(with_partitions(300), "dark").axes
    (image,) = above.images
    assert image.get_array().shape == (300, 300)
    assert image.get_clim() == (0, 2)
    assert bar.get_ylabel() == "lag (records)"
    assert [list(line.get_ydata()) for line in below.lines] == [[150.5, 150.5]]  # the median partition


@pytest.mark.parametrize("partitions", [3, 300])
def test_a_query_without_lag_and_records_has_no_fractions_of_a_record_on_its_axes(partitions):
    idle = list(with_partitions(partitions))
    for one in idle:
        (source,) = one["sources"]
        source["startOffset"] = source["endOffset"]
        source["latestOffset"] |= source["latestOffset"]["@group"]["positions"]
    above, below, *bars = drawn(pictures.lag(idle)).axes
    (of_records,) = bars or [above]
    assert ticks(of_records.yaxis) == ["0", "1"]
    assert below.get_ylim() == (0, 1)
    above, _ = drawn(pictures.skew(idle)).axes
    assert ticks(above.yaxis) == ["0", "1"]


def test_few_records_are_whole_numbers(script):
    script.log("a").assigned(1, T[:1])
    script.log("a").planned(1, 0, [OffsetRange(T[0], 0, 2)], False)
    script.log("a").committed(1, 0, {T[0]: 2})
    totals, _ = drawn(pictures.records(script.files)).axes
    assert ticks(totals.yaxis) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("to_ms", "unit", "until"),
    [(9.2e18, "years", "9200000000000000000 ms"), (1.79e12, "years", "2026-09-21 14:13:20 UTC")],
)
def test_times_far_from_any_calendar_have_short_numbers(tmp_path, to_ms, unit, until):
    file = tmp_path / "far.jsonl"
    common = {"group": "g", "member": "a", "generation": 1, "batch": 0}
    planned = {"time_ms": 0, "event": "planned", **common, "ranges": {"t": {"0": [0, 9]}}}
    committed = {"time_ms": to_ms, "event": "committed", **common, "offsets": {"t": {"0": 9}}}
    file.write_text(f"{json.dumps(planned)}\n{json.dumps(committed)}\n")
    figure = drawn(pictures.batches([file]))
    _, below = figure.axes
    assert figure.get_suptitle() == f"group g: 1970-01-01 00:00:00 – {until}"
    assert below.get_xlabel() == f"time since 00:00:00 UTC ({unit})"
    for axis in (below.xaxis, below.yaxis):
        assert axis.get_offset_text().get_text() == ""
        assert max(map(len, ticks(axis))) <= 6


def test_durations_are_bars_of_phases():
    (axes,) = pictures.durations(with_partitions(3)).axes
    assert legend(axes) == ["other", "walCommit", "addBatch"]
    assert [[bar.get_height() for bar in bars] for bars in axes.containers] == [[300] * 3, [50] * 3, [50] * 3]
    assert axes.get_ylabel() == "duration (ms)"


def test_a_first_batch_that_is_much_longer_is_cut_and_has_its_length():
    first, *others = PROGRESS
    slow = first | {"durationMs": {"addBatch": 90_000, "triggerExecution": 90_000}}
    (axes,) = pictures.durations([slow, *others]).axes
    assert axes.get_ylim()[1] < 90_000
    assert [text.get_text() for text in axes.texts] == ["90,000 ms"]


@pytest.mark.parametrize("partitions", [3, 300])
def test_skew_compares_the_largest_partition_to_the_average(partitions):
    above, below = pictures.skew(with_partitions(partitions)).axes
    ((bars),) = above.containers
    assert [bar.get_height() for bar in bars] == [3 * size for size in range(partitions, 0, -1)]
    average = (partitions + 1) / 2
    assert list(below.lines[0].get_ydata()) == pytest.approx([partitions / average] * 3)


def test_places_of_many_partitions_are_ranks_and_not_their_numbers(monkeypatch):
    above, _ = drawn(pictures.skew(with_partitions(13))).axes
    assert above.get_xlabel() == "rank of each partition of orders, by records read"
    assert above.xaxis.get_major_formatter()(2, 0) == "#3"
    monkeypatch.setattr(progress_samples, "MOST_PARTITIONS", 100)
    above, _ = drawn(pictures.skew(with_partitions(300))).axes
    assert above.get_xlabel() == "rank of every 3rd partition of orders, by records read"
    assert above.xaxis.get_major_formatter()(2, 0) == "#7"


@pytest.mark.parametrize("picture", [pictures.lag, pictures.durations, pictures.skew])
def test_without_progress_of_this_source_the_error_says_so(picture):
    with pytest.raises(ValueError, match="no progress of a groupkafka source: take recentProgress after"):
        picture([])
    with pytest.raises(ValueError, match="is not the progress of a query"):
        picture([{"sources": 3}])


def test_a_group_of_a_progress_that_is_no_text_is_drawn():
    (first, *_) = with_partitions(3)
    first["sources"][0]["latestOffset"]["@group"]["group"] = ["$x"]
    assert pictures.skew([first]).get_suptitle().startswith(r"group ['\$x']: 2026-11-22")


# Themes and texts


@pytest.mark.parametrize("theme", THEMES)
def test_a_theme_has_its_colours_everywhere(theme):
    figure = pictures.owners(RUN, theme)
    from matplotlib.colors import to_hex

    assert to_hex(figure.get_facecolor()) == THEMES[theme].background
    assert to_hex(figure.axes[0].get_facecolor()) == THEMES[theme].panel
    with pytest.raises(ValueError, match=r"theme \('blue'\) must be one of light, dark"):
        pictures.owners(RUN, "blue")


def test_names_are_neither_mathematics_nor_control_characters(script):
    log = script.log(EVIL, group=EVIL)
    tp = TopicPartition(EVIL, 0)
    log.assigned(1, [tp])
    log.planned(1, 0, [OffsetRange(tp, 0, 5)], False)
    log.committed(1, 0, {tp: 5})
    figure = drawn(pictures.overview(script.files))
    texts = [figure.get_suptitle(), *figure.axes[0].get_ylabel().split("\n"), *legend(figure.axes[0])]
    assert all(text.isprintable() and len(text) < 120 for text in texts)
    assert all(text.count("$") == text.count(r"\$") for text in texts)


def test_long_names_of_several_groups_leave_room_for_the_picture(script):
    for number in range(5):
        log = script.log(
            f"member-of-the-team-in-frankfurt-{number}", group=f"enrichment-of-orders-in-production-{number}"
        )
        log.assigned(number, T[:3])
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = drawn(pictures.overview(script.files))  # a layout that finds no room warns
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = [figure._suptitle, *figure.axes[0].get_legend().get_texts()]
    texts += [text for axes in figure.axes for text in axes.get_yticklabels()]
    boxes = [text.get_window_extent(renderer) for text in texts]
    assert min(box.x0 for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= figure.bbox.width
    assert min(axes.get_position().width for axes in figure.axes) > 0.3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12.5, "12.5"),
        (999, "999"),
        (999_999, "1 M"),
        (250_000, "250 k"),
        (-2_500_000, "-2.5 M"),
        (9e18, "9 E"),
    ],
)
def test_numbers_on_pictures_have_three_digits_at_most(value, text):
    assert canvas.short(value) == text


def test_a_label_is_short_and_ids_stay_different():
    assert label("billing") == "billing"
    assert label("_x") == " _x"
    assert len(label("x" * 100)) < 30
    assert label("日本") == "日本"
    near = ["a" * 31 + "0", "a" * 31 + "1"]
    assert len(set(ids(near).values())) == 2
    assert ids(["0" * 32]) == {"0" * 32: "0" * 8}


@pytest.mark.parametrize("times", [[0, 9e18], [5, 5], [-9e18, 0]])
def test_times_that_no_calendar_has_are_drawn(tmp_path, times):
    common = {"event": "assigned", "group": "日本", "member": "m", "generation": 1, "partitions": {"t": [0]}}
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(json.dumps({"time_ms": time} | common) for time in times) + "\n")
    assert pictures.owners(str(file))._repr_png_()


# The command


def plot(capsys, *arguments):
    code = main(["plot", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_command_writes_the_format_that_the_name_says(capsys, tmp_path, suffix, begins):
    file = tmp_path / f"run.{suffix}"
    code, said, _ = plot(capsys, *RUN, "-o", file, "--only", "owners", "--dark")
    assert code == 0
    assert file.read_bytes().startswith(begins)
    note, drawn_line = said.splitlines()
    assert note.endswith("cut off, ignored")
    assert drawn_line == f"{file}: 900x265, {len(read_run(RUN).events)} events of 4 members"


def test_the_command_says_as_json_what_it_drew(capsys, tmp_path):
    _, said, _ = plot(capsys, *RUN, "-o", tmp_path / "run.png", "--json", "--only", "batches")
    note, picture = map(json.loads, said.splitlines())
    assert (note["kind"], picture["kind"], picture["width"], picture["members"]) == ("note", "picture", 900, 4)


@pytest.mark.parametrize(
    ("source", "output", "problem", "code"),
    [
        ("gone.jsonl", "a.png", "gone.jsonl cannot be read: ", 1),
        ("empty.jsonl", "a.png", "empty.jsonl: no events; a query with option eventLog writes them", 1),
        ("good.jsonl", "gone/a.png", "gone/a.png cannot be written: ", 1),
        ("good.jsonl", "a.gif", "a.gif must end with one of .png, .svg, .pdf", 2),
        ("good.jsonl", "a", "a must end with one of .png, .svg, .pdf", 2),
    ],
)
def test_the_command_says_in_one_sentence_what_it_cannot_do(
    capsys, tmp_path, monkeypatch, source, output, problem, code
):
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").write_text("")
    Path("good.jsonl").write_bytes(RUN[1].read_bytes())
    given, _, said = plot(capsys, source, "-o", output)
    assert given == code
    assert said.startswith(f"python -m spark_kafka_group plot: {problem}")
    assert said.count("\n") == 1


def test_without_matplotlib_one_sentence_names_the_extra(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.layout_engine", None)
    code, _, said = plot(capsys, *RUN, "-o", tmp_path / "run.png")
    assert code == 1
    assert said.endswith("pictures need matplotlib, which the extra 'notebook' has: pip install matplotlib\n")
    with pytest.raises(ImportError, match="pip install matplotlib"):
        pictures.skew(PROGRESS)


@pytest.mark.parametrize("picture", ["owners", "lag"])
def test_the_pictures_of_the_documentation_are_small_and_on_the_site(picture):
    assert (ROOT / "docs" / "pictures" / f"{picture}.png").stat().st_size < 100_000
    assert "docs/pictures/*.png" in (ROOT / "Makefile").read_text()


def test_a_notebook_shows_a_picture_by_itself():
    assert pictures.owners(RUN[1])._repr_png_().startswith(b"\x89PNG")


def test_events_of_the_committed_run_are_events():
    assert all(isinstance(parse(line), Event) for file in RUN for line in file.read_text().splitlines()[:-1])
