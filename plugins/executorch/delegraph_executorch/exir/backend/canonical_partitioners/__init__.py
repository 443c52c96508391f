"""ExecuTorch's `executorch.exir.backend.canonical_partitioners`."""
