"""What the page speaks of: a program that was exported."""

import torch
from torch.export import export

from delegraph_executorch.devtools.visualization import visualize_with_clusters  # noqa: F401

exported_program = export(torch.nn.Linear(3, 4), (torch.ones(2, 3),))
