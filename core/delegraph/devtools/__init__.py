"""Looking at programs and runs, without torch.

summary.py    Program -> what is in it: inputs, outputs, operators, delegates, memory, sizes
profile.py    EventTracer -> where the time went
tables.py     records -> tables for people: with rich where it is installed, else as plain text
"""
