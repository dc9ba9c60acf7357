"""Metrics for recommenders: init, update, merge, compute."""
