"""ExecuTorch's `executorch.exir`."""
