"""ExecuTorch's `executorch.devtools.etdump`."""
