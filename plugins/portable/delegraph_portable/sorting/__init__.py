"""Order: sorting, selecting, searching, counting.

sort.py       `sort`, `topk`, `kthvalue`, `median`, `mode`
search.py     `searchsorted`, `bucketize`
unique.py     `_unique2`, `unique_dim`, `unique_consecutive`
counting.py   `histc`, `histogram`, `bincount` …
ordering.py   torch's order of elements: NaN last
"""
