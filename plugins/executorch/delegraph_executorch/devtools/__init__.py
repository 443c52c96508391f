"""ExecuTorch's `executorch.devtools`."""

from delegraph_executorch.devtools.bundled_program.core import BundledProgram

__all__ = ["BundledProgram"]
