"""Programs of Delegraph on the rows of Ray.

shipping     a file that nodes do not share -> each node's disk, once
predictor    the class for `Dataset.map_batches`
executor     actors as a `concurrent.futures.Executor`, for `delegraph.map_table`
"""

from __future__ import annotations

from delegraph_ray.executor import RayExecutor
from delegraph_ray.predictor import DelegraphPredictor
from delegraph_ray.shipping import Shipped, shipped

__all__ = ["DelegraphPredictor", "RayExecutor", "Shipped", "shipped"]
