"""ExecuTorch's module paths on Delegraph: `executorch.exir.backend.partitioner` is `delegraph_executorch.exir.…` here.

Code that was written for ExecuTorch changes its imports (`python -m delegraph_executorch.port FILE…` does that) and
nothing else. A module here has the name, and the public names, of ExecuTorch's module; what they are is in
`delegraph.aot`, `delegraph.runtime` and `delegraph.devtools` wherever new code would want it as well.
"""

from delegraph_executorch.finding import install_finders

install_finders()
