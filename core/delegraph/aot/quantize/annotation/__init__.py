"""A graph and recipes -> which values and weights are rounded, and on what grids.

specs.py            a recipe -> torchao's specs of it
observers.py        values that flow past -> the range that loses least
generic.py          the quantizer for kernel libraries and for backends that bring none
composed.py         several quantizers -> one; an earlier one's annotations stay
masked_scores.py    what stands between a mask and a softmax stays float
residual_sums.py    residual sums that are normalized need more than 8 bits
"""
