"""Making the code for one kind of call: what a trace needs, the trace, its code, and what runs where there is none."""
