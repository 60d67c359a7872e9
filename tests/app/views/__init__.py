"""Tests of the window: app/views."""
