"""ExecuTorch's own backends on Delegraph: its partitioners and compilers ahead of time, its runtime for their blobs.

    edge program ── programs.py ──> ExecuTorch's edge program ── its partitioner ──> tags ── partitioner.py ──> tags
    partition    ── programs.py ──> ExecuTorch's partition    ── its preprocess  ──> blob ── lowerings.py   ──> blob
    blob, arrays ── wrapper.py  ──> a `.pte` with one delegate ── its runtime    ──> outputs (runtime.py)

Needs the wheel `executorch` (the extra `bridge`), which is imported when one of them is used, not before.
"""
