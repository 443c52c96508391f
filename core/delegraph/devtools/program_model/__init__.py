"""One model of a program, from which all tools draw: steps and weights, through delegates, with modules and lines.

rows.py          the rows: nodes, weights, delegates
reading.py       a program, its debug data and what backends describe -> the rows
weight_names.py  an engine's weight -> the names of the user's
sizes.py         rows -> bytes by module, by weight, by delegate; what is stored twice, what compresses
"""
