"""ExecuTorch's `executorch.extension.pybindings.data_loader`: where a program's bytes come from."""

from delegraph.runtime import DataLoader as PyDataLoader

__all__ = ["PyDataLoader"]
