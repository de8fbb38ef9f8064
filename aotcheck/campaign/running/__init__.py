"""Runs blocks in workers that may die: the engine, its workers, and the findings from their deaths."""
