"""One vocabulary of traits that describes programs, as an eager dry run shows them."""
