"""ExecuTorch's `executorch.devtools.visualization`."""

from delegraph_executorch.devtools.visualization.visualization_utils import *  # noqa: F403 - all of its names, and no others
from delegraph_executorch.devtools.visualization.visualization_utils import __all__ as __all__
