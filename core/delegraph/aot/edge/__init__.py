"""Functional core ATen program -> edge program; and what each dialect admits."""
