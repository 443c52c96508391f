"""ExecuTorch's `executorch.devtools`."""
