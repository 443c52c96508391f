"""Who offers what: discovery through entry points, hook specs, registries and diagnosis."""
