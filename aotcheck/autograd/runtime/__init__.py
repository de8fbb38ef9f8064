"""What runs on every call of a compiled function: generated straight-line Python and a few helpers it calls."""
