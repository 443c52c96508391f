"""ExecuTorch's `executorch.runtime`."""
