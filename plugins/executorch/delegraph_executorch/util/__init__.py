"""ExecuTorch's `executorch.util`."""
