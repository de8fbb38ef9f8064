"""Measurements against torch's own AOT autograd."""
