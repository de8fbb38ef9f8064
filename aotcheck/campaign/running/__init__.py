"""Blocks run in workers that may die: the engine, its workers, and what is written down of their deaths."""
