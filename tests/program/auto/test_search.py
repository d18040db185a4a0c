"""The order of the trials, and what they may cost."""

import math
from dataclasses import replace

import pytest

from jitney._program.auto.search import WHOLE, WIDTHS, RunWay, Search, TrialRecord
from jitney._program.auto.trial_costs import end_cost, trial_cost
from jitney._program.runners.workers.parts import Spread

ALONE = {"threads": 0, "joined": False}
NAMES = {f"{width:,}": f"{width:,} at a time" for width in WIDTHS}


def long_name(short):
    """ "64" is "64 at a time", "64 in threads" is "64 at a time in threads"."""
    width, in_threads, _ = short.partition(" in threads")
    return NAMES.get(width, width) + in_threads


def order(rates, size=5000, widths=WIDTHS, *, threads=2, joined=False):
    """Ways in the order in which they are tried, and the best, if an element takes so long in each:
    in one thread 2 and in threads 2 where nothing is said. Each by its short name.
    """
    seconds = {long_name(short): rate for short, rate in rates.items()}
    search, tried = Search(size, widths, 1.0, threads=threads, joined=joined), []
    while (way := search.next_way(1.0 * size)) is not None:
        tried.append(str(way))
        rate = seconds.get(str(way), 2.0)
        if rate == math.inf:
            search.drop(way, "refused")
            continue
        search.add(way, 100, 100 * rate, 1.0)
        if way.carrier == "threads" and way.width is not None:
            alone = replace(way, carrier="")
            search.add(alone, 100, 100 * seconds.get(str(alone), 2.0), None)
    return [way.replace(" at a time", "") for way in tried], str(search.best(1.0 * size))


@pytest.mark.parametrize(
    ("rates", "tried", "best"),
    [
        ({}, ["64 in threads", "whole in threads", "1,024 in threads"], "whole"),
        (
            {"64": 0.5, "256": 0.4},
            [f"{width} in threads" for width in ("64", "whole", "256", "1,024", "16")],
            "256",
        ),
        (
            {"64": 0.5, "16": 0.4, "1": 0.3},
            [f"{width} in threads" for width in ("64", "whole", "256", "16", "1")],
            "1",
        ),
        (
            {"whole in threads": 0.6},
            ["64 in threads", "whole in threads", "1,024 in threads"],
            "whole in threads",
        ),
        (
            {"64 in threads": 0.5, "256 in threads": 0.4},
            [f"{width} in threads" for width in ("64", "whole", "256", "1,024", "16")],
            "256 in threads",
        ),
    ],
)
def test_widths_are_climbed_from_64_in_threads_and_in_one(rates, tried, best):
    """Each case has the seconds of an element; those of the whole are 1, and of others 2."""
    found, quickest = order(rates)
    assert found == tried
    assert quickest == long_name(best)


def test_a_width_that_is_nearly_the_quickest_does_not_end_the_climb():
    """The seconds of a slice are noisy: past 64, which is a little slower than 256, 16 is tried,
    and past 16, which is much slower, 1 is not.
    """
    rates = {"256 in threads": 0.5, "64 in threads": 0.6, "16 in threads": 1.0}
    tried, best = order(rates)
    assert tried == [f"{width} in threads" for width in ("64", "whole", "256", "1,024", "16")]
    assert best == "256 at a time in threads"
    assert "16 in threads" not in order(rates | {"64 in threads": 0.9})[0]


def test_a_width_that_gains_in_threads_alone_is_found_at_once():
    """In one thread it is slower than the whole, of which XLA keeps two cores busy: Kepler's
    equation.
    """
    tried, best = order({"64 in threads": 0.7, "64": 1.4, "whole in threads": 1.0})
    assert tried[0] == "64 in threads"
    assert best == "64 at a time in threads"


def test_threads_have_several_chunks_of_the_first_width():
    """64 of 128 elements in two threads are the whole in threads."""
    tried, _ = order({"whole in threads": 0.8, "64": 0.9}, size=128)
    assert tried[:3] == ["16 in threads", "whole in threads", "64"]
    assert "64 in threads" not in tried


def test_devices_are_tried_last_and_in_the_place_of_threads():
    """With the width that is the best by then, and no other."""
    rates = {"64 at a time in threads": 0.5}
    search = Search(5000, WIDTHS, 1.0, threads=2, devices=True, joined=False)
    tried = []
    while (way := search.next_way(5000.0)) is not None:
        tried.append(str(way))
        search.add(way, 100, 100 * rates.get(str(way), 0.4 if "over" in str(way) else 2.0), 1.0)
    assert [way for way in tried if "over" in way] == tried[-1:] == ["64 at a time over devices"]
    assert str(search.best(5000.0)) == tried[-1]


def test_threads_that_may_not_share_wide_chunks_may_share_narrow_ones():
    """As LAPACK of many numbers at once; the widths next to the best are then tried in one."""
    refused = ("whole in threads", "64 in threads", "16 in threads", "1,024 in threads")
    tried, best = order(dict.fromkeys(refused, math.inf) | {"1 in threads": 0.5})
    assert tried[:5] == ["64 in threads", "64", "whole in threads", "16 in threads", "1 in threads"]
    assert tried[5:] == ["16"]
    assert best == "1 at a time in threads"


def test_one_at_a_time_is_tried_where_elements_wait_for_each_other():
    """A `cond` or a `while_loop` in the body: also if 64 is not quicker than the whole."""
    assert "1 in threads" in order({}, joined=True)[0]
    assert "1" in order({}, joined=True, threads=0)[0]
    assert order({"1": 0.1}, joined=True)[1] == "1 at a time"
    assert "1 in threads" not in order({})[0]
    slow = {"64": 20.0, "64 in threads": 20.0}
    assert "1 in threads" not in order(slow, joined=True)[0]
    assert "1" not in order(slow, joined=True, threads=0)[0]


def test_one_at_a_time_comes_before_the_whole_in_threads_where_64_were_quicker():
    """So it can still be repaid; where 64 were slower, as of most Newton loops, it comes after."""
    quicker, _ = order({"64 in threads": 0.5}, joined=True)
    assert quicker[:3] == ["64 in threads", "1 in threads", "whole in threads"]
    slower, _ = order({}, joined=True)
    assert slower[:3] == ["64 in threads", "whole in threads", "1 in threads"]


def test_widths_of_all_elements_and_more_are_not_tried():
    """The widest below the size is first, if 64 is not."""
    assert order({}, size=50, threads=0)[0] == ["16"]
    assert order({}, size=64, threads=0)[0] == ["16"]
    assert order({}, size=2, threads=0)[0] == ["1"]


def test_what_is_given_by_hand_is_not_tried():
    """No widths, and no threads."""
    assert order({}, widths=())[0] == ["whole in threads"]
    assert all("threads" not in way for way in order({}, threads=0)[0])


def test_what_is_spent_has_to_be_repaid_within_20_compiles():
    """Half of the time of the calls is hoped to be saved, and more if more is known."""
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    assert search.affords(9, 5.0, whole=1.0, taken=10.0)
    assert not search.affords(9, 5.5, whole=1.0, taken=10.0)
    assert not search.affords(0, 20.0, whole=1.0, taken=199.0)

    search.add(RunWay(64), 100, 100 * 1e-4, 10.0)
    assert search.affords(9, 80.0, whole=1.0, taken=10.0)

    search.spent = 100.0
    assert not search.affords(9, 0.0, whole=1.0, taken=10.0)


def test_a_trial_is_expected_to_take_what_the_best_and_the_whole_do():
    """Of a call of 100 ms a quarter of the elements: in threads three times, and twice with one
    worker. The first run is expected to take as long as the whole.
    """
    search, slice_ = Search(1000, WIDTHS, 1.0, threads=2, joined=False), Spread(1000, 250, (0,))
    threads = RunWay(64, "threads")
    cost = lambda way: trial_cost(0.1, slice_, way, search) - end_cost(0.1, search)
    assert cost(threads) == pytest.approx(5 * 0.025)
    search.add(RunWay(16), 100, 0.1 * 0.04, 1.0)
    assert cost(threads) == pytest.approx(0.025 + 4 * 0.025 * 0.6)
    assert cost(RunWay(64)) == pytest.approx(0.025 + 3 * 0.025 * 0.6)


def test_the_end_has_one_turn_of_a_whole_that_is_clearly_slower():
    """Else three of both; and of a long call one of the whole."""
    search = Search(1000, WIDTHS, 1.0, **ALONE)
    search.add(RunWay(16), 100, 0.1 * 0.09, 1.0)
    assert end_cost(0.1, search) == pytest.approx(3 * 0.1 + 3 * 0.09)
    search.add(RunWay(64), 100, 0.1 * 0.08, 1.0)
    assert end_cost(0.1, search) == pytest.approx(0.1 + 3 * 0.08)
    assert end_cost(0.3, search) == 0.3


def test_a_call_longer_than_its_compile_has_20_calls():
    """Else nothing could ever be tried on it."""
    search = Search(1000, WIDTHS, 1.0, **ALONE)
    assert search.affords(2, 80.0, whole=10.0, taken=20.0)
    assert not search.affords(2, 80.0, whole=10.0, taken=200.0)
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    assert not search.affords(2, 80.0, whole=1.0, taken=20.0)


def test_compiles_are_expected_to_take_as_long_as_those_of_the_ways_tried():
    """In the mean; as long as the first of all, until one was tried."""
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    search.add(RunWay(64), 100, 200.0, 60.0)
    assert search.affords(1, 0.0, whole=1.0, taken=10.0)
    assert not search.affords(2, 0.0, whole=1.0, taken=10.0)
    search.add(RunWay(16), 100, 200.0, 20.0)
    assert search.affords(2, 0.0, whole=1.0, taken=10.0)
    assert not search.affords(3, 0.0, whole=1.0, taken=10.0)


def test_what_could_not_be_repaid_in_time_may_be_a_tenth_of_what_calls_take():
    """The search goes on then, and what it is due at says when."""
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    search.spent = 90.0
    assert not search.affords(1, 20.0, whole=1.0, taken=150.0)
    assert not search.affords(1, 20.0, whole=1.0, taken=1199.0)
    assert search.due(search.cost_of(1) + 20.0) == pytest.approx(1200.0)
    assert search.affords(1, 20.0, whole=1.0, taken=1201.0)


def test_what_was_spent_in_vain_holds_up_no_later_trial():
    """From the time when the search is put off it takes a tenth of the calls, whatever compiles
    turn out to take.
    """
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    search.spent = 90.0
    search.write_off(taken=200.0)
    assert search.due(20.0) == pytest.approx(200.0 + 10 * 20.0)
    assert not search.affords(0, 20.0, whole=1.0, taken=399.0)
    assert search.affords(0, 20.0, whole=1.0, taken=401.0)

    search.spent += 50.0  # more than was expected
    search.write_off(taken=401.0)
    assert search.due(20.0) == pytest.approx(200.0 + 10 * 70.0)


def test_the_whole_in_threads_is_last_where_it_keeps_the_cores_busy_by_itself():
    """Image patches, 1.95 cores of two: threads that share the whole gain nothing, and narrow
    chunks do.
    """

    def tried(busy):
        search, ways = Search(5000, WIDTHS, 1.0, threads=2, joined=False), []
        while (way := search.next_way(5000.0, busy)) is not None:
            ways.append(str(way))
            timed(search, way.width, *((0.5, 0.6) if way.width == 64 else (2.0, 2.0)))
        return ways

    idle, busy = tried(1.0), tried(1.95)
    assert idle[:2] == ["64 at a time in threads", "whole in threads"]
    assert busy[-1] == "whole in threads"
    assert {*idle} == {*busy}


def test_a_later_search_goes_on_after_the_trials_of_an_earlier_one():
    """Their seconds count by those of the whole, which takes twice as long now."""
    earlier = Search(5000, WIDTHS, 1.0, threads=2, joined=False)
    timed(earlier, 64, 1.2, 1.5)
    earlier.drop(RunWay(None, "threads"), "other bits")
    left = [str(way) for way in earlier.next_ways(5000.0)]

    later = Search(5000, WIDTHS, 1.0, threads=2, joined=False)
    later.take_over(earlier.records(5000.0), 2 * 5000.0, spent=7.0)
    assert [str(way) for way in later.next_ways(2 * 5000.0)] == left
    assert later.quickest == pytest.approx(2 * 1.2)
    assert later.records(2 * 5000.0) == earlier.records(5000.0)
    assert later.compiles([RunWay(64, "threads")]) == 1
    assert later.again(2 * 5000.0) is None
    assert (later.spent, later.due(3.0)) == (7.0, pytest.approx(30.0))
    assert later.tried == (
        "64 at a time in threads 1.2e+07 earlier, 64 at a time 1.5e+07 earlier,"
        " whole in threads left out earlier"
    )


def test_a_way_that_lost_a_call_of_an_earlier_process_has_one_more():
    """By its seconds on slices; then it is dropped."""
    earlier = Search(1000, WIDTHS, 10.0, **ALONE)
    earlier.add(RunWay(64), 100, 50.0, 1.0)
    earlier.lose(RunWay(64), 1000.0)
    later = Search(1000, WIDTHS, 10.0, **ALONE)
    later.take_over(earlier.records(1000.0), 1000.0, spent=1.0)
    assert later.best(1000.0) == RunWay(64)
    later.lose(RunWay(64), 1000.0)
    assert not later.has_second_chance()


def test_only_ways_of_this_size_are_taken_over():
    """A bucket has sizes that are shorter, and a file may say anything."""
    listed = [(None, ""), (7, ""), (64, "threads"), (16, "threads"), (1024, ""), (1, "")]
    records = [TrialRecord(width, carrier, 0.5, has_lost=False) for width, carrier in listed]
    search = Search(65, WIDTHS, 10.0, threads=2, joined=False)
    ways = search.take_over(records, 65.0, spent=1.0)
    assert ways == [RunWay(16, "threads"), RunWay(1)]


def test_ways_that_are_nearly_the_best_are_compared_at_the_end():
    """Three at most; none if the whole is the best."""
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    assert search.finalists(1000.0) == []
    for width, seconds in ((64, 50.0), (16, 57.0), (256, 58.0), (1, 54.0), (1024, 53.0)):
        search.add(RunWay(width), 100, seconds, 1.0)
    assert search.finalists(1000.0) == [RunWay(64), RunWay(1024), RunWay(1)]
    assert search.finalists(1000.0, 9) == [RunWay(64), RunWay(1024), RunWay(1), RunWay(16)]
    assert search.finalists(499.0) == []


def test_what_is_less_than_twice_as_slow_as_the_best_is_tried_once_more():
    """The nearest first, each once; neither the best nor what is far from it."""
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    for width, seconds in ((64, 50.0), (16, 94.0), (256, 60.0), (1, 96.0)):
        search.add(RunWay(width), 100, seconds, 1.0)
    tried = []
    while (way := search.again(1000.0)) is not None:
        tried.append(way.width)
        assert search.first_elements(way) == 100
        search.add(way, 100, 70.0, None)
        assert search.first_elements(way) is None
    assert tried == [256, 16]
    assert search.finalists(1000.0, 9) == [RunWay(64)]
    assert "256 at a time again 7e+05, 16 at a time again 7e+05" in search.tried


def test_the_lesser_of_two_trials_counts():
    """Each was disturbed, or was not."""
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    search.add(RunWay(64), 100, 60.0, 1.0)
    search.add(RunWay(256), 100, 50.0, 1.0)
    search.add(RunWay(64), 100, 30.0, None)
    search.add(RunWay(256), 100, 70.0, None)
    assert search.quickest == 0.3
    assert search.best(499.0) == RunWay(64)
    search.drop(RunWay(64), "fails")
    assert search.best(501.0) == RunWay(256)
    assert search.best(499.0) == WHOLE


def test_threads_are_tried_once_more_for_their_program_with_one_worker():
    """Both are of one trial; where the one is best, the other may have been disturbed."""
    search = Search(1000, WIDTHS, 10.0, threads=2, joined=False)
    threads = RunWay(64, "threads")
    search.add(threads, 100, 60.0, 1.0)
    search.add(RunWay(64), 100, 50.0, None)
    assert search.again(1000.0) == threads
    search.add(threads, 100, 30.0, None)
    assert search.again(1000.0) is None


def timed(search, width, threads, alone):
    """Seconds of an element, in two threads and in one: one trial, as `Trials` makes it."""
    search.add(RunWay(width, "threads"), 100, 100 * threads, 1.0)
    search.add(RunWay(width), 100, 100 * alone, None)


def test_threads_that_had_one_core_are_tried_once_more_before_a_new_way():
    """Where another width gained by threads, and these would be the best with as much: encounters
    of `python -m tests.perf.auto`, whose threads took 27 ms, and one worker 26.7.
    """
    search = Search(4096, WIDTHS, 1.0, threads=2, joined=True)
    timed(search, 64, 20.2, 36.2)
    assert search.had_one_core(4096 * 53.0) is None
    timed(search, 1, 27.0, 26.7)
    one = RunWay(1, "threads")
    assert search.had_one_core(4096 * 53.0) == one
    search.add(one, 100, 100 * 27.1, None)
    assert search.had_one_core(4096 * 53.0) is None


@pytest.mark.parametrize(
    ("threads", "alone", "whole"),
    [(15.0, 26.7, 53.0), (40.0, 39.0, 53.0), (27.0, 26.7, 14.0), (math.inf, 26.7, 53.0)],
)
def test_other_threads_had_both_cores_or_would_not_be_the_best(threads, alone, whole):
    """They gain as the others do; or with as much gain they are slower than the best so far, or
    than the whole; or they cannot run.
    """
    search = Search(4096, WIDTHS, 1.0, threads=2, joined=True)
    timed(search, 64, 20.2, 36.2)
    timed(search, 1, threads, alone)
    assert search.had_one_core(4096 * whole) is None


def test_seconds_that_a_coarse_clock_does_not_see_are_no_gain():
    search = Search(4096, (64,), 1.0, threads=2, joined=False)
    search.add(RunWay(64, "threads"), 4096, 4096 * 22.0, 1.0)
    search.add(RunWay(64), 4096, 0.0, None)
    assert search.had_one_core(4096 * 53.0) is None


def test_no_threads_had_one_core_where_none_gain():
    """XLA keeps both cores busy by itself."""
    search = Search(4096, WIDTHS, 1.0, threads=2, joined=False)
    timed(search, 64, 20.0, 20.0)
    timed(search, 256, 22.0, 19.0)
    search.drop(RunWay(64), "other bits")
    assert search.had_one_core(4096 * 53.0) is None


def test_a_program_that_has_run_all_elements_is_compiled_once():
    """In its trial, or in a call that it lost."""
    search = Search(1000, WIDTHS, 1.0, threads=2, joined=False)
    whole, wide, narrow = RunWay(None, "threads"), RunWay(256, "threads"), RunWay(16, "threads")
    search.add(whole, 1000, 50.0, 1.0)
    search.add(wide, 1000, 50.0, 1.0)
    search.add(replace(wide, carrier=""), 1000, 60.0, None)
    search.add(narrow, 100, 5.0, 1.0)
    assert search.compiles([WHOLE, whole, wide]) == 0
    assert search.compiles([wide, replace(wide, carrier=""), narrow]) == 2
    search.lose(narrow, 100.0)
    assert search.compiles([narrow]) == 0


def test_devices_wait_for_second_trials():
    """They take the place of the threads that are the best by then."""
    search = Search(65, (), 1.0, threads=2, devices=True, joined=False)
    search.add(RunWay(None, "threads"), 65, 66.0, 1.0)
    assert search.next_way(65.0) is None
    search.add(search.again(65.0), 65, 40.0, None)
    assert str(search.next_way(65.0)) == "whole over devices"


def test_a_way_that_lost_a_call_has_another_with_the_next_best():
    """It counts as slow as in the call until then, and is dropped the second time."""
    search = Search(1000, WIDTHS, 10.0, **ALONE)
    search.add(RunWay(64), 100, 50.0, 1.0)
    search.add(RunWay(256), 100, 80.0, 1.0)
    search.lose(RunWay(64), 1000.0)
    assert search.compiles([RunWay(64)]) == 0
    assert search.finalists(1000.0) == [RunWay(256), RunWay(64)]
    search.lose(RunWay(256), 1100.0)
    search.lose(RunWay(64), 1000.0)
    assert search.best(1000.0) == WHOLE
    assert search.has_second_chance()
    assert search.best(1000.0) == RunWay(256)
    search.lose(RunWay(256), 1000.0)
    assert not search.has_second_chance()
    assert search.best(1e9) == WHOLE


def test_the_whole_is_best_until_something_is_quicker():
    """Also where a trial is as quick."""
    search = Search(100, WIDTHS, 1.0, **ALONE)
    assert search.best(1.0) == WHOLE
    search.add(RunWay(64), 100, 1.0, 1.0)
    assert search.best(1.0) == WHOLE
    assert search.best(1.1) == RunWay(64)
