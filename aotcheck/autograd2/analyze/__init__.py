"""analyze: what the states of a trace say of its inputs and results becomes a signature."""
