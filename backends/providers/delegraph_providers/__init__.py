"""Backends on onnxruntime's execution providers: parts of a model run on the devices that providers drive.

    partition ── delegraph_onnx ──> ONNX graph ── asked: which nodes are yours? ──> the partition's nodes
                                        └──────── compiled for a device ──────────> binary ──> EPContext at load

providers.py        a row for each provider: its package, its name, its backend
engine.py           onnxruntime with a provider in it
options.py          choices of users
blob.py             a delegate's bytes: compiled binary, inputs, outputs
context_model.py    binary -> the ONNX model of one node, EPContext, that holds it
aot/                partitioner and lowering
runtime/            runs blobs, without torch
"""
