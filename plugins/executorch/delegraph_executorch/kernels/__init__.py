"""ExecuTorch's `executorch.kernels`."""
