"""A program -> where the time of its runs goes, through delegates: by module, by line and by node of the user's model.

measuring.py     a program -> warmed-up, traced executions, as many as make the result stable -> a `Profile`
node_times.py    events of traced runs -> the times of each step; the call of a delegate is divided among its nodes
times.py         the records: seconds in each run of a node, a module, a line, a delegate
percentiles.py   seconds of several runs -> percentiles
groups.py        the times of nodes -> those of modules, lines and delegates
profile.py       the `Profile`: its tables, JSON, HTML and files
tables.py        times -> tables that fit a terminal
flame_graph.py   times of nodes -> an SVG: modules, lines in them, nodes in these
perfetto.py      events -> a Chrome trace, which ui.perfetto.dev opens
"""
