"""The kernel library SampleName for Delegraph. Empty on purpose: devices without torch import it, too."""
