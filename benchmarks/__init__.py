"""Measures of speed as ratios in one run; nothing here asserts a time."""
