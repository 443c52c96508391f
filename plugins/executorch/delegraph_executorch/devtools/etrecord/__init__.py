"""ExecuTorch's `executorch.devtools.etrecord`."""
