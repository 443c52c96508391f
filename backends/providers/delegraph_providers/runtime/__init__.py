"""Runs blobs of providers, without torch."""
