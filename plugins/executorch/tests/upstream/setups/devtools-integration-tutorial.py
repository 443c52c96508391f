"""The page's ETDump, which its reader gets from a runner written in C++: of its model, on this runtime."""

import torch
from torch.export import export

from delegraph_executorch.exir import to_edge
from delegraph_executorch.runtime import Runtime


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 6, 5), torch.nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = torch.nn.Linear(400, 120), torch.nn.Linear(120, 84), torch.nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.max_pool2d(torch.relu(self.conv1(x)), (2, 2))
        x = torch.flatten(torch.max_pool2d(torch.relu(self.conv2(x)), 2), 1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


_inputs = (torch.randn(1, 1, 32, 32),)
_program = Runtime.get().load_program(to_edge(export(_Net(), _inputs)).to_executorch().buffer, enable_etdump=True)
_program.load_method("forward").execute(_inputs)
_program.write_etdump_result_to_file("etdump.etdp", "debug.bin")
