"""ATen mode: the operators of a program on torch's own out variants, over the same planned memory.

Importing this package does not import torch; the first operator that is looked up does.
"""

from delegraph_aten.library import AtenLibrary, library

__all__ = ["AtenLibrary", "library"]
