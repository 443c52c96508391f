"""A model that a backend computes wrongly, refuses or dies of -> the smallest part of it that does, as a script.

prepared    model -> its functional program, and which calls of it each backend takes, as one partition
subgraph    calls of that program -> a program of their own, with inputs and torch's results
trial       such a program -> a verdict: it is lowered, loaded, run and compared
judge       the same in a process of its own, which may die or hang
smallest    calls that fail -> those that cannot be fewer
script      the smallest program -> a folder with a script that shows the fault
search      a method -> its faults, each in the smallest part that shows it
result      text for people, JSON for machines
debug       the one call

A `.pte` beside its model -> the layers at which wrong numbers begin:

expected_values    torch's value of each call, by the handle that the program has for it
layer_gaps         rows: how far each layer is off; text and JSON
numeric_gap        the one call
"""
