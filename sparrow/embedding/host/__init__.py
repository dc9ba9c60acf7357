"""Tables in host memory: a cache of their rows on the device, planned ahead from the batches."""
