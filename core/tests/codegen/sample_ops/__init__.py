"""A user's package: operators, and kernels in a module that imports no torch."""
