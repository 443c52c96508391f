"""ExecuTorch's `executorch.devtools.bundled_program.config`: test cases, and what they are made of."""

from collections.abc import Sequence
from typing import TypeAlias

import torch

from delegraph.devtools import MethodTestCase, MethodTestSuite

__all__ = ["ConfigValue", "DataContainer", "MethodInputType", "MethodOutputType", "MethodTestCase", "MethodTestSuite"]

ConfigValue: TypeAlias = torch.Tensor | int | bool | float
MethodInputType: TypeAlias = Sequence[ConfigValue]
MethodOutputType: TypeAlias = Sequence[torch.Tensor]
DataContainer: TypeAlias = list | tuple | dict  # type: ignore[type-arg]  # its users ask for its arguments
