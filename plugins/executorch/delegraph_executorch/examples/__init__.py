"""ExecuTorch's `executorch.examples`: its own modules, from its wheel, under our name."""
