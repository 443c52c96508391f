"""ExecuTorch's `executorch.exir.backend`."""
