"""Lifetimes -> places in memory: the planners behind the entry points `delegraph.memory_planners`; no torch.

A planner is a function `(lifetimes, alignment) -> Plan`:

    naive        a place of its own for everything
    greedy       the default: best fit, sweeps over a list of free blocks, ExecuTorch's greedy, hill climbing
    search       branch and bound from there on: looks for a plan of the lower bound, or proves that there is none
"""

from delegraph.aot.emission.planners.greedy import best_fit, greedy
from delegraph.aot.emission.planners.naive import naive
from delegraph.aot.emission.planners.search import search

__all__ = ["best_fit", "greedy", "naive", "search"]
