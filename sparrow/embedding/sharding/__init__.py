"""Tables over many devices: where rows are, how ids and rows travel, and the `Embedder`'s work on a mesh."""
