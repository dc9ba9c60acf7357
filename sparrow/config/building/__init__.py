"""From a checked config to the objects that train: tables, batches, optimizers, losses."""
