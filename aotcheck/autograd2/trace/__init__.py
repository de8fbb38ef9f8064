"""The trace: the user's function runs for real on replicas, and what it computes is recorded as a graph."""
