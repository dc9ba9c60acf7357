"""Dense optimizers: optax, built by name."""
