"""A program as text.

to_text.py          a program -> text
from_text.py        text -> a program
html.py             a program as HTML, for notebooks
"""
