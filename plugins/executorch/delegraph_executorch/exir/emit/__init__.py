"""ExecuTorch's `executorch.exir.emit`."""
