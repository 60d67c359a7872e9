"""Tests of the window: app/backend."""
