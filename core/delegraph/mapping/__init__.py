"""A program, called on each row of a table.

methods       the program's methods -> which columns they take and give, and how many rows a call has
row_mapper    columns -> columns, with what went wrong by row: NumPy alone
arrow         columns of Arrow <-> arrays
sources       files -> parts of rows, read one after the other
parts         results of parts, in a folder beside the output, as long as that is not whole
identity      what has to be the same for a run to go on
targets       parts -> the output
map_table     the one call, in this process, in others, or wherever an executor has them
"""
