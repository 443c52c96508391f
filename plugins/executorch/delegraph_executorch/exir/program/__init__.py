"""ExecuTorch's `executorch.exir.program`."""
