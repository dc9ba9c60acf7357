"""Tables as layers of Flax, in both of its forms."""
