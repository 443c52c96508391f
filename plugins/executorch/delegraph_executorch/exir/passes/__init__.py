"""ExecuTorch's `executorch.exir.passes`."""
