"""Names in a program -> the kernels and delegates that stand behind them.

kernels.py          an operator's name and its arguments -> a kernel, by ExecuTorch's rules of choice
prim_ops.py         the runtime's own operators
backends.py         a backend's id -> the backend
backend_options.py  options by backend, as a caller has them -> by id
delegates.py        blobs -> initialised delegates
context.py          what a kernel or delegate may ask of the runtime
environment.py      what a program may use of all that
"""
