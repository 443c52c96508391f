"""ExecuTorch's `executorch.kernels.quantized`."""
