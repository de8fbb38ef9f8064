"""Eager's own graph of autograd, as replicas left it: what its nodes save, what is freed together."""
