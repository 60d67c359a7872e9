"""Tests of the window: app/models."""
