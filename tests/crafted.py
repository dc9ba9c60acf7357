"""Files that somebody crafted: one value of a JSON document replaced or removed."""


def changed(held, rng, values):
    """Replace or remove one value, at any depth."""
    while True:
        key = rng.choice(list(held) if isinstance(held, dict) else range(len(held)))
        inner = held[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            held = inner
        elif rng.random() < 0.3:
            del held[key]
            return
        else:
            held[key] = rng.choice(values)
            return
