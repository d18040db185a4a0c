"""Calls that choose by measuring how they run: `auto=True`.

    fit(curves)     the whole, until such calls have taken as long as their compile
                    each next call also runs a slice of its elements in another way
                    the quickest on slices runs one call beside the whole: the choice falls
    fit(curves)     as chosen, in this process and in the next

`call_times.py` knows how long calls take without waiting for them, `search.py` is which ways are
tried in what order and for how much, `choice_record.py` is the file of a choice, `calls_of_size.py`
is what is known of one size, `trials.py` makes the trials and the decision, whose runs are those of
`way_runs.py`, and `auto_calls.py` runs the calls.
"""
