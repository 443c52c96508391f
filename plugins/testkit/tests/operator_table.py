"""torch's operator database -> `operators.txt`: the operators that the kit tries, with their dtypes.

    python plugins/testkit/tests/operator_table.py

In the table is what eager torch computes in the same way every time, on samples with elements, with tensors of the
kit's dtypes as results, and what lowering without a backend leaves as a call that something has to run.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

import delegraph
import delegraph_testkit
from delegraph import ExecutorchBackendConfig
from delegraph_testkit.claims import DTYPES
from delegraph_testkit.models import Example
from delegraph_testkit.operator_samples import entries, operator_examples
from delegraph_testkit.outcomes import Declined

FILE = Path(delegraph_testkit.__file__).with_name("operators.txt")
HEAD = f"""# Entries of torch's operator database that the kit tries, with their dtypes: the denominator of the level
# `operators`. Made of torch {torch.__version__.partition("+")[0]} by tests/operator_table.py.
"""


def belongs(entry: str, dtype: str) -> bool:
    """Whether the table has a row for it."""
    try:
        examples = operator_examples(entry, dtype)
        return all(_is_determined(example) and _is_left(example) for example in examples)
    except (Declined, Exception):  # whatever torch or lowering raises: it can be no row
        return False


def _is_determined(example: Example) -> bool:
    module, inputs = example.modules["forward"], example.calls["forward"][0]
    runs = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        runs.append(pytree.tree_leaves(module(*(tensor.clone() for tensor in inputs))))
    known = {getattr(torch, dtype) for dtype in DTYPES}
    return all(
        isinstance(a, torch.Tensor)
        and a.layout == torch.strided
        and a.dtype in known
        and torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(*runs, strict=True)
    )


def _is_left(example: Example) -> bool:
    config = ExecutorchBackendConfig(check_kernels=False)
    lowered = delegraph.lower(example.modules["forward"], example.calls["forward"][0], config=config)
    return bool(lowered.report.methods["forward"].leftovers)


def main() -> None:
    rows = []
    for entry in entries():
        dtypes = [dtype for dtype in DTYPES if belongs(entry, dtype)]
        if dtypes:
            rows.append(f"{entry}: {' '.join(dtypes)}\n")
        print(entry, *dtypes, file=sys.stderr)
    FILE.write_text(HEAD + "".join(rows), "utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
