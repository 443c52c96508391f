"""Backends on onnxruntime's execution providers: parts of a model run on the devices that providers drive.

    partition ── delegraph_onnx ──> ONNX graph ── asked: which nodes are yours? ──> the partition's nodes
                                        ├──────── compiled for a device ──────────> binary ──> EPContext at load
                                        └──────── as it is ───────────────────────> graph ───> compiled at load

providers.py        a row for each provider: its package, its name, its backend
hardware.py         the GPUs and NPUs of this machine, whether or not a provider is installed
engine.py           onnxruntime with a provider in it
options.py          choices of users
blob.py             a delegate's bytes where it is compiled at lowering: binary, inputs, outputs
graph_blob.py       … and where at load: graph, weights, states
context_model.py    binary -> the ONNX model of one node, EPContext, that holds it
aot/                partitioner and lowering
runtime/            runs blobs, without torch
"""
