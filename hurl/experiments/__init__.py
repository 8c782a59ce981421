"""Runs: their configuration, the presets, one run and its folder."""
