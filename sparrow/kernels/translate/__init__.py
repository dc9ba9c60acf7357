"""A rule's equation on its way into a kernel: traced, made a graph, cut into passes over the row.

``graph`` gives the jaxpr of a row step, the values that it computes and the one list of what a rule may use, ``passes``
the loops. The writers of code are ``native.translate`` (C++) and ``cuda.emit`` (CUDA).
"""
