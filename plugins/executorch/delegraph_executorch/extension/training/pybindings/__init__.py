"""ExecuTorch's `executorch.extension.training.pybindings`."""
