"""ExecuTorch's `executorch.extension.llm`."""
