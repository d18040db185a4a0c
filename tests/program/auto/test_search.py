"""The order of the trials, and what they may cost."""

import math

import pytest

from jitney._program.auto.search import WHOLE, WIDTHS, RunWay, Search

ALONE = {"threads": False, "joined": False}


def order(rates, size=5000, widths=WIDTHS, *, threads=True, joined=False):
    """Ways in the order in which they are tried, and the best, if an element takes so long."""
    search, tried = Search(size, widths, 1.0, threads=threads, joined=joined), []
    while (way := search.next_way(1.0 * size)) is not None:
        tried.append(str(way))
        rate = rates.get(str(way), 2.0)
        if rate == math.inf:
            search.drop(way, "refused")
        else:
            search.add(way, 100, 100 * rate, 1.0)
    return tried, str(search.best(1.0 * size))


@pytest.mark.parametrize(
    ("rates", "tried", "best"),
    [
        ({}, ["64", "whole in threads", "1,024"], "whole"),
        ({"64": 0.5, "256": 0.4}, ["64", "64 in threads", "256", "1,024"], "256"),
        ({"64": 0.5, "16": 0.4, "1": 0.3}, ["64", "64 in threads", "256", "16", "1"], "1"),
        (
            {"whole in threads": 0.6},
            ["64", "whole in threads", "1,024 in threads"],
            "whole in threads",
        ),
        (
            {"64": 0.9, "64 in threads": 0.5, "256 in threads": 0.4},
            ["64", "64 in threads", "256 in threads", "1,024 in threads"],
            "256 in threads",
        ),
        (
            {"whole in threads": math.inf},
            ["64", "whole in threads", "64 in threads", "1,024"],
            "whole",
        ),
    ],
)
def test_widths_are_climbed_from_64_and_threads_are_tried_early(rates, tried, best):
    """Each case has the seconds of an element; those of the whole are 1, and of others 2."""
    spelled = {way.replace("64", "64 at a time"): rate for way, rate in rates.items()}
    for number in ("256", "16", "1,024", "1"):
        spelled = {
            f"{number} at a time{way.removeprefix(number)}"
            if way.split(" ")[0] == number
            else way: rate
            for way, rate in spelled.items()
        }
    found, quickest = order(spelled)
    assert [way.replace(" at a time", "") for way in found] == tried
    assert quickest.replace(" at a time", "") == best


def test_a_width_that_is_slower_in_one_thread_may_be_quicker_in_two():
    """If it takes less than twice as long as the whole; what is next to it is tried then."""
    rates = {"1,024 at a time": 1.2, "1,024 at a time in threads": 0.7}
    tried, best = order(rates | {"256 at a time in threads": 0.5})
    assert tried[:3] == ["64 at a time", "whole in threads", "1,024 at a time"]
    assert tried[3:5] == ["1,024 at a time in threads", "256 at a time in threads"]
    assert best == "256 at a time in threads"
    assert "1,024 at a time in threads" not in order({"1,024 at a time": 2.0})[0]


def test_devices_are_tried_last_and_in_the_place_of_threads():
    """With the width that is the best by then, and no other."""
    rates = {"64 at a time": 0.9, "64 at a time in threads": 0.5}
    search = Search(5000, WIDTHS, 1.0, threads=True, devices=True, joined=False)
    tried = []
    while (way := search.next_way(5000.0)) is not None:
        tried.append(str(way))
        search.add(way, 100, 100 * rates.get(str(way), 0.4 if "over" in str(way) else 2.0), 1.0)
    assert [way for way in tried if "over" in way] == tried[-1:] == ["64 at a time over devices"]
    assert str(search.best(5000.0)) == tried[-1]


def test_threads_that_may_not_share_wide_chunks_may_share_narrow_ones():
    """As LAPACK of many numbers at once."""
    refused = ("whole", "64 at a time", "16 at a time")
    rates = {f"{way} in threads": math.inf for way in refused}
    tried, best = order(rates | {"1 at a time in threads": 0.5})
    assert tried[1:5] == [*rates, "1 at a time in threads"]
    assert best == "1 at a time in threads"


def test_one_at_a_time_is_tried_where_elements_wait_for_each_other():
    """A `cond` or a `while_loop` in the body: also if 64 is not quicker than the whole."""
    assert "1 at a time" in order({}, joined=True)[0]
    assert order({"1 at a time": 0.1}, joined=True)[1] == "1 at a time"
    assert "1 at a time" not in order({})[0]


def test_widths_of_all_elements_and_more_are_not_tried():
    """The widest below the size is first, if 64 is not."""
    assert order({}, size=50, threads=False)[0] == ["16 at a time"]
    assert order({}, size=64, threads=False)[0] == ["16 at a time"]
    assert order({}, size=2, threads=False)[0] == ["1 at a time"]


def test_what_is_given_by_hand_is_not_tried():
    """No widths, and no threads."""
    assert order({}, widths=())[0] == ["whole in threads"]
    assert all("threads" not in way for way in order({}, threads=False)[0])


def test_what_is_spent_has_to_be_repaid_within_20_compiles():
    """Half of the time of the calls is hoped to be saved, and more if more is known."""
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    assert search.affords(9, 5.0, whole=1.0, taken=10.0)
    assert not search.affords(9, 5.5, whole=1.0, taken=10.0)
    assert not search.affords(0, 1.0, whole=1.0, taken=199.0)

    search.add(RunWay(64), 100, 100 * 1e-4, 10.0)
    assert search.affords(9, 80.0, whole=1.0, taken=10.0)

    search.spent = 100.0
    assert not search.affords(9, 0.0, whole=1.0, taken=10.0)


def test_a_call_longer_than_its_compile_has_20_calls():
    """Else nothing could ever be tried on it."""
    search = Search(1000, WIDTHS, 1.0, **ALONE)
    assert search.affords(2, 5.0, whole=10.0, taken=20.0)
    assert not search.affords(2, 5.0, whole=10.0, taken=200.0)


def test_compiles_are_expected_to_take_as_long_as_the_longest():
    """Programs in chunks may take longer to compile than the whole."""
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    search.add(RunWay(64), 100, 200.0, 60.0)
    assert search.affords(1, 0.0, whole=1.0, taken=10.0)
    assert not search.affords(2, 0.0, whole=1.0, taken=10.0)


def test_the_whole_is_best_until_something_is_quicker():
    """Also where a trial is as quick."""
    search = Search(100, WIDTHS, 1.0, **ALONE)
    assert search.best(1.0) == WHOLE
    search.add(RunWay(64), 100, 1.0, 1.0)
    assert search.best(1.0) == WHOLE
    assert search.best(1.1) == RunWay(64)
