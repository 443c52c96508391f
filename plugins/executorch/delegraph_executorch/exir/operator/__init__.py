"""ExecuTorch's `executorch.exir.operator`."""
