"""A plan -> who uses which byte when.

accesses.py         an instruction -> the values that it reads and writes
live_ranges.py      a plan -> from where to where each value is alive
memory_maps.py      lifetimes and places -> a map of each memory
memory_tables.py    a map as tables
memory_drawing.py   a map as a drawing
"""
