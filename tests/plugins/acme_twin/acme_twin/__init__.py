"""An imaginary device with two engines."""
