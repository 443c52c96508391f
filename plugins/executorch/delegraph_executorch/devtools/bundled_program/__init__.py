"""ExecuTorch's `executorch.devtools.bundled_program`."""
