"""ExecuTorch's `executorch.extension.export_util`."""
