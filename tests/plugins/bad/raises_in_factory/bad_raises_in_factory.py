"""A factory and a constructor that raise."""

from delegraph.interfaces import BackendInterface


def partitioner(options):
    raise RuntimeError("no licence found for the compiler")


class Backend(BackendInterface):
    """Its device cannot be opened."""

    def __init__(self):
        raise OSError("/dev/acme0: no such device")

    def init(self, context, processed, compile_specs):
        return None

    def execute(self, context, handle, args):
        pass
