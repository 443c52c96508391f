"""New tensors: filled, counted, drawn.

factories.py   `full`, `arange`, `empty` …
random.py      `rand`, `randint`, `normal`, `multinomial`, `native_dropout` …, and the generator that they draw from
"""
