"""What the page speaks of: a trace, its buffer and the record of a program that ran."""

import torch
from torch.export import export

from delegraph_executorch.exir import to_edge_transform_and_lower
from delegraph_executorch.runtime import Runtime


class _Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y + y


_inputs = (torch.ones(2, 2), torch.ones(2, 2))
_lowered = to_edge_transform_and_lower(export(_Model(), _inputs), generate_etrecord=True).to_executorch()
_program = Runtime.get().load_program(_lowered.buffer, enable_etdump=True, debug_buffer_size=10_000_000)
_program.load_method("forward").execute(_inputs)
etdump_path, etrecord_path, buffer_path = "etdump.etdp", "record.etrecord", "debug.bin"
_program.write_etdump_result_to_file(etdump_path, buffer_path)
_lowered.get_etrecord().save(etrecord_path)

ref_outputs = [_Model()(*_inputs)]
