"""What the page speaks of: a program that was exported."""

import torch
from torch.export import export

exported_program = export(torch.nn.Linear(3, 4), (torch.ones(2, 3),))
