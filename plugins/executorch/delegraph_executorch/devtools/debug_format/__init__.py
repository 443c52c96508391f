"""ExecuTorch's `executorch.devtools.debug_format`."""
