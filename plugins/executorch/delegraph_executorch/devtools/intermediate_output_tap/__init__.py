"""ExecuTorch's `executorch.devtools.intermediate_output_tap`."""
