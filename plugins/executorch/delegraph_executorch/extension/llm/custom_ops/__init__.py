"""ExecuTorch's `executorch.extension.llm.custom_ops`."""
