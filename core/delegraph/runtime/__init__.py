"""Program -> outputs, without torch."""
