"""Results for people: plans, axis facts, and tables and pictures of what jitney measured.

    print(f.plan(x))           # plan_report.py: each decision about a call is a `PlanLine`
    fill      n 5 -> 8 (60% padding); by repeating the last element; results are cut
    axis n    reduced: sum (fit.py:6 (f))

`axis_facts.py` and `lanes.py` analyse the body for a plan, `drawing.py` and `sketches.py` draw it
as SVG. The other files have the results of single functions: `comparisons.py`,
`streamed.py`. Stages and programs, which a plan is about, do not import this folder.
"""
