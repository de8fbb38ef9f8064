"""A program as data: its model, the steps of a call's plan, and a few programs written by hand."""
