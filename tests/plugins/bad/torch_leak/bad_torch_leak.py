"""A runtime half that would cost its users seconds and hundreds of megabytes at every start."""

import torch

from delegraph.interfaces import BackendInterface


class Backend(BackendInterface):
    """A backend."""

    def init(self, context, processed, compile_specs):
        return torch.frombuffer(bytearray(processed), dtype=torch.uint8)

    def execute(self, context, handle, args):
        pass
