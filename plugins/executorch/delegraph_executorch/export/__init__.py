"""ExecuTorch's `executorch.export`."""
