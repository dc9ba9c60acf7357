"""Losses for recommenders: one value per example, `reduce` makes the mean."""
