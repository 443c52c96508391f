"""The numeric contract: what a plug-in claims, run on operands from the edges of each dtype, and compared with torch.

edges.py        a dtype -> the numbers at its edges
undefined.py    what torch leaves open, which is not compared
programs.py     an operator of torch's database -> small modules, and calls of them with such operands
reference.py    torch's results, and how far they may be off
kinds.py        the kinds in which a result may differ
differences.py  a result and torch's -> the kinds in which they differ
sweep.py        plug-ins, an operator, a dtype -> cells
contract.py     cells and what an author claims -> breaches
report.py       cells -> tables
"""
