"""`delegraph lower | run | inspect | plugins`."""
