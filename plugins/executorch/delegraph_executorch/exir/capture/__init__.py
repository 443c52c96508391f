"""ExecuTorch's `executorch.exir.capture`."""
