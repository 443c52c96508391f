"""ExecuTorch's `executorch.exir.verification`."""
