"""Common parts of simulated devices: each module by its own name; NumPy and `delegraph`, never torch.

arguments      a call's arguments -> its arrays, checked
descriptions   a device's TOML file -> frozen dataclasses
fixed_point    real scales and accumulators -> integers, as TOSA 1.0 computes them
memories       bytes -> cycles of a memory or a transfer
energy         operations and bytes -> picojoules
scratch        lifetimes -> places in a scratch memory
hazards        a command stream's accesses -> the first that comes too early
counters       what runtimes tell of each operator -> columns of an Inspector's table
constant_reads  operators, and the bytes of constants that they read -> weights of a description
values         an option at load, and steps that tell a tracer each operator's value
roofline       work, bytes, cycles -> a picture
"""
