"""ExecuTorch's `executorch.exir._serialize`."""
