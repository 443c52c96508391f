"""Lowered program -> `program.Program`: lifetimes, memory plan, values and instructions."""
