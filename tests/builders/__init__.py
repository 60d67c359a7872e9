"""Makers of model files for tests: broken ones, tiny ones with a reference, and large ones."""
