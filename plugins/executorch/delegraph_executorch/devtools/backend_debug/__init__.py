"""ExecuTorch's `executorch.devtools.backend_debug`."""
