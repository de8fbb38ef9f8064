"""How a joint trace is divided into a forward and a backward."""
