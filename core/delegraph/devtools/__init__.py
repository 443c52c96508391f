"""Looking at programs and runs, without torch.

summary.py         Program -> what is in it: inputs, outputs, operators, delegates, memory, sizes
profile.py         EventTracer -> where the time went
selective_build/   programs -> a wheel or zipapp with what they need and nothing else
"""
