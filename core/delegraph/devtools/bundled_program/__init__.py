"""Bundled programs: a program with inputs to try it on and the outputs that are expected, in one `.bpte`."""
