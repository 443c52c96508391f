"""Partitioners of the package `api_v1_foreign`, made to fit."""

from api_v1_examples.partitioner import api_v1_partitioner


def adapt(partitioner):
    """What stands for it."""
    return api_v1_partitioner(scale=partitioner.scale)
