"""A trained state applied to data: metrics, predictions, the importance of features."""
