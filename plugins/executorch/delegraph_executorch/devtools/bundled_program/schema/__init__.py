"""ExecuTorch's `executorch.devtools.bundled_program.schema`."""

from delegraph_executorch.devtools.bundled_program.schema.bundled_program_schema import *  # noqa: F403 - all of its names, and no others
from delegraph_executorch.devtools.bundled_program.schema.bundled_program_schema import __all__ as __all__
