"""A program in a process of its own, for files that are not trusted: `delegraph.load(…, isolated=True)`.

this process                                     the child, `python -m delegraph.runtime.isolation.child`
IsolatedModule ── Process ── frames, pipes ──>   may only read files ──> loads ──> rehearses ──> opens nothing
   arguments, results, structures                runs; whatever it sends is checked here

sandbox.py   system calls that a process may not make any more
frames.py    JSON and arrays over a pipe
child.py     the child
process.py   the child's life, as its parent has it
module.py    what a user calls
"""
