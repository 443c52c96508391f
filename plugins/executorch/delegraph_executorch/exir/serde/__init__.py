"""ExecuTorch's `executorch.exir.serde`."""
