"""ExecuTorch's `executorch.extension.pybindings`."""
