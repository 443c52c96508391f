"""Bound calls -> a run: done, stopped or failed, and traced.

executor.py         the loop over instructions
limits.py           how much a program may use
stop.py             a wish from another thread to end a run
exclusive.py        one thread at a time
faults.py           a failed instruction -> an error that says which
tracing.py          what a run did -> events
etdump.py           events -> an ETDump
"""
