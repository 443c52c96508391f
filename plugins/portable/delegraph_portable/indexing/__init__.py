"""Reading and writing by indices, masks and views.

reading.py         `gather`, `index`, `index_select`, `masked_select`, `nonzero`, `embedding` …
scattering.py      `scatter`, `scatter_reduce`, `index_reduce` …
writing.py         `index_put`, `masked_scatter`, `slice_scatter`, `select_scatter` …
segments.py        `segment_reduce`
embedding_bag.py   bags of embeddings, and their gradients
indices.py         index tensors -> checked places in memory
"""

from . import embedding_bag, reading, scattering, segments, writing  # noqa: F401  importing them registers their kernels
