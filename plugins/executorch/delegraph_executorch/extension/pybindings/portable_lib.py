"""ExecuTorch's `executorch.extension.pybindings.portable_lib`: the names of `_portable_lib`."""

from delegraph_executorch.extension.pybindings._portable_lib import *  # noqa: F403 - all of its names, and no others
from delegraph_executorch.extension.pybindings._portable_lib import __all__ as __all__
