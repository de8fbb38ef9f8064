"""How a program runs in eager: inputs built, statements interpreted, steps performed, memory guarded."""
