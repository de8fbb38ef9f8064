"""Finished functional graphs: run, handed to compilers, checked when they first run."""
