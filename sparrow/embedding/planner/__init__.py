"""The planner: where each table belongs on a mesh, chosen from its size and from the lookups of a real batch."""
