"""What the page speaks of: a program that was lowered."""

import torch
from torch.export import export

from delegraph_executorch.exir import to_edge

prog = to_edge(export(torch.nn.Linear(3, 4), (torch.ones(2, 3),))).to_executorch()
