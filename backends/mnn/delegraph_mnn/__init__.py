"""A backend on MNN, an engine for the CPUs of phones and PCs.

    partition ── delegraph_onnx ──> ONNX graph ── at load: MNN's converter ──> MNN's graph ──> session

engine.py           MNN, imported quietly; ONNX -> MNN's graph, in a process of its own
blob.py             a delegate's bytes: ONNX graph and weights
options.py          choices of users
aot/                what MNN computes as torch does, the partitioner, the lowering
runtime/            runs blobs, without torch
"""
