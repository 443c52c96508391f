"""ExecuTorch's `executorch.exir.dialects.backend`."""
