"""The recorded program: functional operations on values, and what each storage holds as such."""
