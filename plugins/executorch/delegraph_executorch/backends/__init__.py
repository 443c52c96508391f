"""ExecuTorch's `executorch.backends`: its own modules, from its wheel, under our name.

Its partitioners are used as they are: what lowers here hands them to the bridge (`delegraph_executorch.bridge`).
"""
