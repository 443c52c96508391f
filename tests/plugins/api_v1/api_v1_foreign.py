"""Somebody else's package, which knows nothing of Delegraph."""


class Foreign:
    """A partitioner: it says a backend's scale, and has a `partition` of another kind."""

    def __init__(self, scale):
        self.scale = scale

    def partition(self, *anything):
        raise NotImplementedError("it is never called")
