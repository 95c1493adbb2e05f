"""The sliding window: positions when cells finish in any order."""

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.processing.record import Record
from spark_kafka_group.processing.work_queue import Window, cells_of


def record(offset, partition=0, topic="t"):
    return Record(None, b"v", topic, partition, offset, 0, 0)


def cells(count, size):
    return list(cells_of(map(record, range(count * size)), size))


def finish(window, cell):
    cell.left = 0
    return window.slide(cell.partition)


def test_cells_of_100_in_a_window_of_4_the_article_s_example():
    all_cells = cells(8, 100)
    window = Window(4)
    for cell in all_cells[:4]:
        window.admit(cell)
    assert window.full
    assert not finish(window, all_cells[1])
    assert not finish(window, all_cells[2])
    assert window.positions == {("t", 0): 0}  # 100-199 and 200-299 are done, and nothing may be committed
    assert window.full  # and they stay in the window
    assert finish(window, all_cells[0])
    assert window.positions == {("t", 0): 300}
    for cell in all_cells[4:7]:
        assert not window.full
        window.admit(cell)
    assert window.full  # 300-699


def test_cells_that_finish_in_the_order_2_3_1_count_0_0_300():
    one, two, three = cells(3, 100)
    window = Window(3)
    for cell in (one, two, three):
        window.admit(cell)
    seen = []
    for cell in (two, three, one):
        finish(window, cell)
        seen.append(window.positions["t", 0])
    assert seen == [0, 0, 300]
    assert window.empty


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 7), st.integers(1, 5),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_every_record_is_in_one_cell_in_order_and_positions_never_pass_what_is_not_done(
    partitions, size, window_cells, random
):
    records, next_offset = [], dict.fromkeys(range(3), 0)
    for partition in partitions:
        next_offset[partition] += random.randint(1, 3)  # offsets have gaps
        records.append(record(next_offset[partition], partition))
    cut = list(cells_of(records, size))
    for partition in range(3):
        of_cells = [r for cell in cut if cell.partition == ("t", partition) for r in cell.records]
        assert of_cells == [r for r in records if r.partition == partition]
    window, waiting, flying = Window(window_cells), list(cut), []
    done = set()
    while waiting or flying:
        while waiting and not window.full:
            flying.append(waiting.pop(0))
            window.admit(flying[-1])
        cell = flying.pop(random.randrange(len(flying)))
        done.update((r.partition, r.offset) for r in cell.records)
        finish(window, cell)
        for (_, partition), position in window.positions.items():
            before = [r for r in records if r.partition == partition and r.offset < position]
            assert all((r.partition, r.offset) in done for r in before)
        assert window.most_records <= window_cells * size
    assert window.empty
    assert window.positions == {
        ("t", p): max(r.offset for r in records if r.partition == p) + 1 for p in set(partitions)
    }
