"""Which of the installed backends, and which way to quantize, is fastest for a model here.

candidates    backends × recipes -> programs, or why there is none
timing        programs -> times, each in a process of its own, the candidates in turn
result        a table, JSON, and the fastest
compare       the one call
"""
