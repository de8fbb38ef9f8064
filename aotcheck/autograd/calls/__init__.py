"""The key of a call: what decides which compiled code is right for it, and what Python finds around it."""
