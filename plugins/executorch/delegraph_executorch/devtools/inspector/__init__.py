"""ExecuTorch's `executorch.devtools.inspector`."""
