"""A program as data: the model, the steps around a call as plain data, and a few programs written by hand."""
