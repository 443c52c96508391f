"""ExecuTorch's `executorch.exir.dialects.edge.op`."""
