"""What all rooms share: editing a program, its resolved signature, source locations, tensor specs, operator facts."""
