"""ExecuTorch's `executorch.exir.dialects`."""
