"""ExecuTorch's `executorch.extension.export_util`."""

from delegraph_executorch.extension.export_util.utils import export_to_edge, export_to_exec_prog, save_pte_program

__all__ = ["export_to_edge", "export_to_exec_prog", "save_pte_program"]
