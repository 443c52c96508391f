"""ExecuTorch's `executorch.extension.flat_tensor.serialize`."""
