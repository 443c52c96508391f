"""Model -> program, ahead of time; needs torch."""
