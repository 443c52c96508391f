"""ExecuTorch's `executorch.extension`."""
