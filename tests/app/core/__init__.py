"""Tests of the window: app/core."""
