"""From inputs of any form to packed batches."""
