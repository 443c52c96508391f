"""A program's graph, by the module hierarchy, to look at: in a browser, a notebook, or Model Explorer.

graph.py      a program and its model -> nodes, with modules, edges, places in memory, partitions, reasons
overlays.py   what tools measured, from their JSON -> a number for each node: time, bytes, error
page.py       graphs and overlays -> one HTML file, which needs no network (page.html, page.css, page.js)
explorer.py   graphs and overlays -> Model Explorer's JSON
main.py       Model Explorer's adapter for `.pte`: `model-explorer m.pte --extensions=delegraph.devtools.program_view`
view.py       what users call
"""
