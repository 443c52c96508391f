"""Instructions, values, kernels and delegates -> bound calls, made once when a method is loaded.

instructions.py     records -> calls in blocks
rebinding.py        a delegate's call whose arguments lie elsewhere in each run -> calls kept by where those lie
shape_bindings.py   the shapes of a call -> instructions bound to them
bound_method.py     a method's instructions -> the one call that runs them
checking.py         bound calls -> the same, watched (check mode)
"""
